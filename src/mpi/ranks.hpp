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

struct Version {
  std::uint32_t major, minor, patch;
};

/// Of this library.
PENSTOCK_API extern const Version kVersion;

/// Finds the nodes, and whether all ranks can go on. Collective: one small exchange, two in large communicators. If a
/// rank passes a `failure` or has too little memory, all ranks throw: that rank its failure, the others
/// Error(peer_failed) with that rank. Throws Error(mismatch) on all ranks if their `version`s differ.
PENSTOCK_API Ranks find_ranks(MPI_Comm comm, int thread_level, const std::exception_ptr& failure = nullptr,
                              const Version& version = kVersion);
/// The same for ranks that know each other already. Allocates nothing if no rank passes a failure.
void require_all(MPI_Comm comm, const std::exception_ptr& failure);

}  // namespace penstock::mpi
