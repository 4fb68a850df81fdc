// Runs the plans of all ranks in one process, on real memory, in a random order that the plans allow.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "penstock/plan.hpp"

namespace penstock::plan {

/// The buffers of one rank; `output` also holds what the rank has there before.
struct RankMemory {
  std::vector<std::byte> input;
  std::vector<std::byte> output;
};

/// Runs plans[r] on memory[r] for all ranks together. Everything that a real execution may do differently is drawn
/// from `seed`: which ready step runs next, whether a rank runs ahead of the others, and for each message whether it is
/// buffered or waits for its receiver. Scratch and shared memory, and the target of a message that has not arrived, are
/// filled with garbage. Local; blocks until all are complete; single-threaded.
/// Throws Error(internal) where the plans come to a deadlock, leave a message over, touch memory out of bounds or write
/// their input; Error(invalid_argument) for buffers that do not have the sizes of the plans.
void simulate(std::span<const Plan> plans, const Arithmetic& arithmetic, std::span<RankMemory> memory,
              std::uint64_t seed);

}  // namespace penstock::plan
