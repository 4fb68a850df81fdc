// The simulated executor: runs the plans of all ranks in one process, on real memory, in a random legal order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "penstock/plan.hpp"

namespace penstock::plan {

/// The buffers of one rank. `output` is also an input, as in MPI_IN_PLACE.
struct RankMemory {
  std::vector<std::byte> input;
  std::vector<std::byte> output;
};

/// Runs plans[r] on memory[r] for all ranks. `seed` determines everything in which executions can differ: which ready
/// step runs next, whether a rank runs ahead, and whether a message is buffered or waits for its receiver. Scratch and
/// shared memory, and the target of a message before it arrives, are filled with garbage. Local, blocking,
/// single-threaded.
/// Throws Error(internal) if the plans deadlock, leave a message over, access memory out of bounds or write their
/// input. Throws Error(invalid_argument) if buffers do not have the sizes of the plans.
void simulate(std::span<const Plan> plans, const Arithmetic& arithmetic, std::span<RankMemory> memory,
              std::uint64_t seed);

}  // namespace penstock::plan
