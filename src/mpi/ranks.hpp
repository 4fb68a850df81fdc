// Which ranks of a communicator share a node.
#pragma once

#include PENSTOCK_MPI_HEADER

#include <cstdint>
#include <exception>
#include <vector>

#include "penstock/export.hpp"

namespace penstock::mpi {

/// What all ranks of a communicator know about each other.
struct Ranks {
  std::vector<std::int32_t> node_of_rank;  ///< numbered from 0 by first appearance
  bool any_thread = false;                 ///< on all of them
};

/// Collective. If a rank passes a `failure`, all ranks throw: that rank its failure, the others Error(peer_failed) with
/// that rank. Allocates nothing if no rank passes one.
void require_all(MPI_Comm comm, const std::exception_ptr& failure);

struct Version {
  std::uint32_t major, minor, patch;
};

/// Of this library.
PENSTOCK_API extern const Version kVersion;

/// Finds the nodes by one small exchange. The constructor allocates all memory.
class PENSTOCK_API RankFinder {
 public:
  explicit RankFinder(int size);
  /// Collective. Throws Error(mismatch) on all ranks if their `version`s differ.
  Ranks find(MPI_Comm comm, int thread_level, const Version& version = kVersion);

 private:
  /// In all versions of Penstock the first two words that a rank sends, so that others understand the last one.
  struct Facts {
    std::uint64_t node;
    std::uint32_t thread_level;
    std::uint32_t version;
  };
  void require_one_version() const;

  std::vector<Facts> facts_;
  std::vector<std::uint64_t> names_;
  std::vector<std::int32_t> order_;
  Ranks ranks_;
};

}  // namespace penstock::mpi
