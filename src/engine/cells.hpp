// Messages through shared cells, without locks: every receiver has one queue that all ranks of its node append to.
//
// As in Nemesis (Buntinas, Mercier, Gropp 2006), with the stub of Vyukov's queue instead of a compare-and-swap: the
// receiver never waits for a sender that was stopped between its two stores. A cell belongs to its sender: it takes
// one of its own that is free, fills it and appends it; the receiver clears in_use when it has emptied it and another
// one follows, which it is itself if need be: its stub. That costs both sides a cache line, so it comes after a while.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/segment.hpp"

namespace penstock::engine {

/// One rank's end: its queue and its own cells. One thread at a time.
class Cells {
 public:
  explicit Cells(Segment& segment);

  /// The largest payload of at most `wanted` bytes that take() has a cell for, now or later: less where /dev/shm is
  /// full.
  std::uint64_t most_payload_bytes(std::uint64_t wanted);
  /// A free cell for a message to that rank, or nullptr: then all are in use, or the receiver has its share of them
  /// (so that a rank that does not listen leaves some for the others). Fill header and payload, then send().
  Cell* take(std::uint32_t to_local_rank, std::uint64_t payload_bytes = 0);
  /// Sends the cell that was taken last.
  void send();

  /// The next message to this rank, or nullptr. It is there until the next call.
  Cell* receive();

  /// If the queue is cut at its head because a rank died while it appended a message, links that message, so that it
  /// and all that came after it are received. `gone`, by local rank: whose processes have ended. True if it did;
  /// receive() may then meet the next such gap.
  bool mend(const std::vector<bool>& gone);

  /// Sequentially consistent look for sleepers: false while a message is there or about to be.
  bool empty() const noexcept;

 private:
  struct Taken {
    std::uint32_t index;
    std::uint32_t receiver;
  };

  bool grow();
  std::uint32_t quota_of(std::uint32_t cells) const;
  void append(RankSlot& receiver, std::uint32_t index);
  bool advance();
  bool is_linked(std::uint32_t index) const;
  Cell* next_message();
  void reclaim(std::size_t at_most);

  Segment& segment_;
  RankSlot& slot_;
  const std::uint32_t stub_;
  const int patience_;  ///< looks at an empty queue before its last cell is given back
  int empty_looks_ = 0;
  std::uint32_t head_;         ///< the last message that was received, or the stub
  std::uint32_t large_ = 0;    ///< cells that are not small and have memory
  std::uint32_t refused_ = 0;  ///< times that there was none for more of them
  std::uint32_t asked_ = 0;    ///< and how often since it was asked for
  std::uint32_t quota_;
  std::vector<std::uint32_t> free_;  ///< not small
  std::vector<std::uint32_t> free_small_;
  std::vector<Taken> taken_;  ///< a ring in the order of sending
  std::size_t taken_first_ = 0;
  std::size_t taken_count_ = 0;
  std::vector<std::uint32_t> taken_by_;  ///< cells that each receiver has not returned yet, as far as known
};

}  // namespace penstock::engine
