// How the ranks of a communicator find each other's memory: made once, collectively.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "engine/segment.hpp"

namespace penstock::engine {

struct Node {
  Team team;                             ///< the nodes that really share memory
  std::unique_ptr<Segment> segment;      ///< nullptr: this rank shares memory with nobody
  std::vector<std::int32_t> ranks;       ///< by local rank; empty without a segment
  std::vector<std::int32_t> local_rank;  ///< by rank; -1 on other nodes
  std::vector<pid_t> process;            ///< by local rank
  /// The same on all ranks, and not that of communicators shortly before. MPI gives what a freed communicator used to a
  /// later one, which then receives what nobody took: questions after ranks that were late, news of failures.
  std::uint16_t communicator = 0;
  int max_tag = 32767;                   ///< Transport::max_tag() of all ranks
  bool single_copy = false;              ///< every rank of the node can read every other's memory
  std::uint64_t eager_bytes = 0;         ///< the smallest wish of all ranks
  std::uint64_t shared_limit_bytes = 0;  ///< the smallest arena of all nodes
  std::vector<std::string> facts;        ///< for report()
  std::shared_ptr<const void> workers;   ///< holds the progress threads that the options ask for

  /// Blocking and collective. Whatever fails on one rank makes all ranks of its node do without.
  static Node set_up(Transport& transport, const EngineOptions& options);
};

}  // namespace penstock::engine
