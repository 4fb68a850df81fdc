// Simulates the time that the plans of all ranks take on given cores. Runs no step.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "penstock/plan.hpp"

namespace penstock::plan {

/// The order of the levels of a tree. If cores are scarce, earlier levels run first.
enum class LevelOrder : std::uint8_t {
  from_root,         ///< bcast, scatter
  to_root,           ///< reduce, gather
  to_root_and_back,  ///< allreduce on one node with rank 0 as root
};

struct Timing {
  LevelOrder order = LevelOrder::from_root;
  /// A level begins when the previous level is complete, as equation 4 of the split-tree paper assumes.
  bool levels_in_sequence = false;
  /// Threads that have finished their computation also run Lane::progress, as in the engine.
  bool waiting_helps = false;
  int progress_cores = 1;  ///< per node; 0: the ranks' cores do their work while they wait
  double computation = 0;  ///< of each rank, on its core
  /// The time that a core of this lane takes to move `bytes` between two ranks and, in a reduction, to combine them.
  /// Empty: 1 for every edge that carries data.
  std::function<double(Lane lane, std::uint64_t bytes)> edge_cost{};
};

/// For each of `timings`, the time from a common start to the end of the last step. Each rank has an application core,
/// which runs Lane::application: edges towards the root before the computation, others after it. Each node has
/// communication cores, which work for all of its ranks. Tasks run on any free core of their lane. The receiver does
/// the work of a message; steps inside a rank take no time. The plans must be correct (verify). Local, pure, any
/// thread. Throws Error(internal) if they deadlock.
std::vector<double> makespans(std::span<const Plan> plans, std::span<const std::int32_t> node_of_rank,
                              std::span<const Timing> timings);

}  // namespace penstock::plan
