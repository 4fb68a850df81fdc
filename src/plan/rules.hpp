// The rules that a plan obeys by itself: verify() checks them for the plans of all ranks, the engine for its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "penstock/plan.hpp"

namespace penstock::plan {

/// Each returns what follows the name of the step, task or plan in a message: the rule that it violates. Empty: none.
std::string violated_step_rule(const Plan& plan, StepId id);
std::string violated_task_rule(const Plan& plan, std::size_t task, std::span<const std::int32_t> node_of_rank);
/// The rules of Plan::by_flags, of a plan whose steps violate none. Empty if it has by_flags false.
std::string violated_flag_rule(const Plan& plan);

}  // namespace penstock::plan
