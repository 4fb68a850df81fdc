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
/// Of shared memory in such a plan: kFlaggedBytes of data, and room for the lengths that its signals tell.
inline constexpr std::uint64_t kFlagMemoryBytes = kFlaggedBytes + 64;
/// Data of a rank that end before this offset lie in the cache line of its flag.
inline constexpr std::uint64_t kBesideFlagBytes = 48;
/// Rounds of a plan with Plan::by_flags.
inline constexpr std::uint32_t kFlagRounds = 16;
/// The rules of Plan::by_flags, of a plan whose steps violate none. Empty if it has by_flags false.
/// - Tags are below kFlagRounds. A signal has no smaller tag than the signals before it in the plan.
/// - A signal comes after all waits and writes of the shared buffer that the plan has before it. Between the signals of
///   one round there are none. So a flag that has been raised for a later round tells no less.
/// - The lengths that signals tell lie inside the shared memory, apart from each other and from what is written.
/// - What has been published is not written again. The output is not written before the last wait: a plan that stops at
///   a wait can be run again from its beginning, without the writes that have been published.
std::string violated_flag_rule(const Plan& plan);

}  // namespace penstock::plan
