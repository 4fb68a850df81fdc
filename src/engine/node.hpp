// The node of a rank, as its engine sees it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/segment.hpp"
#include "penstock/plan.hpp"

namespace penstock::engine {

/// This rank's node, as the engine sees it.
struct Node {
  Team team;                             ///< its nodes are those that really share memory
  std::shared_ptr<Segment> segment;      ///< nullptr: this rank shares memory with no other rank
  std::vector<std::int32_t> ranks;       ///< by local rank; empty without a segment
  std::vector<std::int32_t> local_rank;  ///< by rank; -1 on other nodes
  std::vector<pid_t> process;            ///< by local rank
  /// A number, equal on all ranks and different from that of recent communicators. MPI may reuse the context of a freed
  /// communicator, so a new one can receive probes and notices that were sent to the old one; their number differs.
  std::uint16_t communicator = 0;
  int max_tag = 32767;                   ///< the smallest Transport::max_tag() of all ranks
  bool single_copy = false;              ///< ranks of the node can read each other's memory
  std::uint64_t eager_bytes = 0;         ///< the minimum over all ranks
  std::uint64_t shared_limit_bytes = 0;  ///< the smallest ring of all nodes
  std::vector<std::string> facts;        ///< for report()
  std::shared_ptr<const void> workers;   ///< holds the progress threads that the options ask for
};

}  // namespace penstock::engine
