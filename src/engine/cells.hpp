// The shared-memory message queue: lock-free, one queue per receiver, to which all ranks of its node append cells.
//
// As in Nemesis (Buntinas, Mercier, Gropp 2006), with the stub of Vyukov's queue instead of a compare-and-swap, so the
// receiver never waits for a sender that was stopped between its two stores.
// A cell belongs to its sender. The sender takes a free cell of its own, fills it and appends it. The receiver clears
// in_use when it has emptied the cell and another cell follows. If none follows for a while, the receiver appends its
// own stub, so that the last cell is returned too. This costs both sides a cache line, so it is not done at once.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/segment.hpp"

namespace penstock::engine {

/// One rank's end of the queues: it receives from its queue and sends its own cells. One thread at a time.
class Cells {
 public:
  explicit Cells(Segment& segment);

  /// The largest payload, at most `wanted` bytes, for which take() can have a cell. Less than `wanted` if /dev/shm is
  /// full.
  std::uint64_t most_payload_bytes(std::uint64_t wanted);
  /// A free cell for a message to that rank. nullptr if all cells are in use, or if that receiver holds its quota of
  /// them; the quota keeps a rank that does not receive from blocking the others. If `leaves_reserve`, also if only the
  /// reserve is free: many ranks that do not receive can hold all other cells. Fill header and payload, then call
  /// send().
  Cell* take(std::uint32_t to_local_rank, std::uint64_t payload_bytes = 0, bool leaves_reserve = false);
  /// Sends the cell that take() returned last.
  void send();

  /// The next message to this rank, or nullptr. Valid until the next call.
  Cell* receive();
  /// The next receive() gives the same message again.
  void put_back() { is_put_back_ = true; }

  /// Repairs the queue if a rank died between the two stores of an append: links its cell, so that this message and all
  /// later ones are received. `gone`, by local rank: whether the process has ended. Returns true if it repaired a gap;
  /// receive() may then reach another one.
  bool mend(const std::vector<bool>& gone);

  /// For threads that are about to sleep. Sequentially consistent: false if a message is there or is being appended.
  bool empty() const noexcept;

 private:
  struct Taken {
    std::uint32_t index;
    std::uint32_t receiver;
  };

  bool grow();
  /// From where to take a cell; nullptr if there is none.
  std::vector<std::uint32_t>* free_for(std::uint64_t payload_bytes, bool leaves_reserve);
  std::uint32_t quota_of(std::uint32_t cells) const;
  void append(RankSlot& receiver, std::uint32_t index);
  bool advance();
  bool is_linked(std::uint32_t index) const;
  Cell* next_message();
  void reclaim(std::size_t at_most);

  Segment& segment_;
  RankSlot& slot_;
  const std::uint32_t stub_;
  const int patience_;  ///< how many polls of an empty queue come before its last cell is returned
  int empty_looks_ = 0;
  std::uint32_t head_;         ///< the last message that was received, or the stub
  bool is_put_back_ = false;   ///< it is to be received again
  std::uint32_t large_ = 0;    ///< large cells that have memory
  std::uint32_t refused_ = 0;  ///< how often the system had no memory for more of them
  std::uint32_t asked_ = 0;    ///< calls of grow() since the last refusal
  std::uint32_t quota_;
  std::vector<std::uint32_t> free_;  ///< not small
  std::vector<std::uint32_t> free_small_;
  std::vector<Taken> taken_;  ///< cells in use, a ring in the order of sending
  std::size_t taken_first_ = 0;
  std::size_t taken_count_ = 0;
  std::vector<std::uint32_t> taken_by_;  ///< by receiver: cells that it has not returned, as far as known
};

}  // namespace penstock::engine
