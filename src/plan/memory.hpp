// The memory that a cached plan takes.
#pragma once

#include <cstdint>

#include "penstock/plan.hpp"

namespace penstock::plan {

/// Includes the engine's compiled form, which takes about as much again for steps and dependencies.
inline std::uint64_t memory_bytes(const Plan& plan) {
  return sizeof(Plan) + plan.algorithm.capacity() + 2 * plan.steps.capacity() * sizeof(Step) +
         2 * plan.dependencies.capacity() * sizeof(StepId) + plan.blocks.capacity() * sizeof(Block) +
         plan.tasks.capacity() * sizeof(SharedTask) + plan.task_groups.capacity() * sizeof(TaskGroup) +
         plan.task_regions.capacity() * sizeof(RankRegion);
}

}  // namespace penstock::plan
