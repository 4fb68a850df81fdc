// Runs the plans of all ranks on simulated time: how long they take on so many cores, without running anything.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "penstock/plan.hpp"

namespace penstock::plan {

/// The order in which the levels of a tree follow each other; where cores are scarce, earlier ones go first.
enum class LevelOrder : std::uint8_t {
  from_root,         ///< bcast, scatter
  to_root,           ///< reduce, gather
  to_root_and_back,  ///< allreduce, on one node, the root being rank 0
};

struct Timing {
  LevelOrder order = LevelOrder::from_root;
  /// No level begins before the one that it follows is complete, as equation 4 of paper 000 assumes.
  bool levels_in_sequence = false;
  /// Threads that have computed and wait take work of Lane::progress too, as those of the engine do.
  bool waiting_helps = false;
  int progress_cores = 1;  ///< of each node; 0: what they would do is done on the cores of the ranks, when these wait
  double computation = 0;  ///< of each rank, on its core
  /// What it takes a core of a lane to move so many bytes between ranks and combine them with what is there. Empty: 1
  /// for every edge that carries data.
  std::function<double(Lane lane, std::uint64_t bytes)> edge_cost{};
};

/// The time from a common start to the last end of a step, for each of `timings`. Each rank has a core of the
/// application, which runs what a plan places on Lane::application: edges towards the root before the computation,
/// others after it. Each node has cores of communication, which serve all of its ranks; shared tasks take any core of
/// their lane that is free. The work of a message is that of its receiver; steps inside a rank cost nothing. The plans
/// are correct ones (see verify). Local; pure; any thread. Throws Error(internal) where they come to a deadlock.
std::vector<double> makespans(std::span<const Plan> plans, std::span<const std::int32_t> node_of_rank,
                              std::span<const Timing> timings);

}  // namespace penstock::plan
