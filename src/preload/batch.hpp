// Operations for a rehearsal: of MPI and of Penstock, on memory of their own.
#pragma once

#include PENSTOCK_MPI_HEADER

#include <cstddef>
#include <cstdint>
#include <vector>

#include "penstock/comm.hpp"
#include "preload/call.hpp"
#include "preload/trial.hpp"

namespace penstock::preload {

/// A call without its buffers, as it is rehearsed: what moves data moves bytes.
class Pattern {
 public:
  /// Of a call whose length is known, see agreed_bytes().
  Pattern(const Call& like, std::uint64_t bytes, const Members& members);
  /// Of a call with lists.
  Pattern(const Call& like, BlockBytes blocks);

  std::size_t sent_bytes() const noexcept { return sent_bytes_; }
  std::size_t received_bytes() const noexcept { return received_bytes_; }
  /// With these buffers. Refers to this pattern.
  Call call(void* from, void* to) const;

 private:
  struct Lists {
    std::vector<int> counts{};
    std::vector<int> displacements{};
  };

  static Lists one_after_the_other(std::vector<int> counts);

  Call like_{};
  bool in_place_ = false;
  Lists sent_{};
  Lists received_{};
  std::vector<MPI_Datatype> types_{};
  std::size_t sent_bytes_ = 0;
  std::size_t received_bytes_ = 0;
};

/// Operations in flight at once, each with buffers of its own. The patterns take turns.
class Batch {
 public:
  Batch(std::vector<Pattern> patterns, std::size_t operations, const Members& members);

  void begin_with_first() noexcept { next_ = 0; }
  void run(Server server, Comm& penstock);

 private:
  std::vector<Pattern> patterns_;
  Members members_;
  std::size_t sent_bytes_ = 1;  ///< of an operation, at most
  std::size_t received_bytes_ = 1;
  std::vector<std::byte> from_{};
  std::vector<std::byte> to_{};
  std::vector<MPI_Request> requests_;
  std::size_t next_ = 0;
};

/// How many blocks a rank sends or receives, at most, where each has as many bytes as the call.
std::uint64_t blocks_of(CollectiveKind kind, int ranks);

}  // namespace penstock::preload
