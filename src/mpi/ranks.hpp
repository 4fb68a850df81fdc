// Which ranks of a communicator share a node.
#pragma once

#include PENSTOCK_MPI_HEADER

#include <cstdint>
#include <exception>
#include <vector>

namespace penstock::mpi {

struct Ranks {
  std::vector<std::int32_t> node_of_rank;  ///< numbered from 0 by first appearance
  bool any_thread = false;                 ///< on all of them
};

/// Collective. Where `failure` says on one rank that it cannot go on, all ranks throw: that one the same, the others
/// Error(peer_failed) with its rank in `comm`. Needs no memory where nothing is thrown.
void require_all(MPI_Comm comm, const std::exception_ptr& failure);

/// One small exchange, for which all memory is taken when it is made. Ranks share a node if they run under one kernel
/// and host name, and see the same /dev/shm: that is where they share memory.
class RankFinder {
 public:
  explicit RankFinder(int size);
  /// Collective.
  Ranks find(MPI_Comm comm, int thread_level);

 private:
  struct Facts {
    std::uint64_t node;
    std::uint64_t thread_level;
  };
  std::vector<Facts> facts_;
  std::vector<std::int32_t> order_;
  Ranks ranks_;
};

}  // namespace penstock::mpi
