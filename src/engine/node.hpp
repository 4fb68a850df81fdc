// Sets up the shared memory of a communicator's nodes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "engine/segment.hpp"

namespace penstock::engine {

/// This rank's node, as the engine sees it.
struct Node {
  Team team;                             ///< its nodes are those that really share memory
  std::unique_ptr<Segment> segment;      ///< nullptr: this rank shares memory with no other rank
  std::vector<std::int32_t> ranks;       ///< by local rank; empty without a segment
  std::vector<std::int32_t> local_rank;  ///< by rank; -1 on other nodes
  std::vector<pid_t> process;            ///< by local rank
  /// A number, equal on all ranks and different from that of recent communicators. MPI may reuse the context of a freed
  /// communicator, so a new one can receive probes and notices that were sent to the old one; their number differs.
  std::uint16_t communicator = 0;
  bool single_copy = false;              ///< ranks of the node can read each other's memory
  std::uint64_t eager_bytes = 0;         ///< the minimum over all ranks
  std::uint64_t shared_limit_bytes = 0;  ///< the smallest ring of all nodes
  std::vector<std::string> facts;        ///< for report()
  std::shared_ptr<const void> workers;   ///< the claim on progress threads, see Progress::claim_threads

  /// Blocking, collective. If shared memory fails on one rank, all ranks of its node do without.
  static Node set_up(Transport& transport, const EngineOptions& options);
};

}  // namespace penstock::engine
