// The tasks of a plan, indexed for running them. Ranks are local ranks of the node here, numbered from 0.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "penstock/plan.hpp"
#include "plan/lists.hpp"

namespace penstock::engine {

/// Throws Error(invalid_argument) that names the plan.
[[noreturn]] void reject_plan(const Plan& plan, const std::string& why);

/// Immutable. A CompiledPlan owns it.
class CompiledTasks {
 public:
  CompiledTasks() = default;
  /// Throws Error(invalid_argument) if the tasks cannot be run: too many tasks or groups, regions outside of this
  /// rank's buffers, ranks of other nodes, tasks that are not published exactly once, no single copy.
  CompiledTasks(const Plan& plan, const Team& team);

  std::uint32_t count() const { return static_cast<std::uint32_t>(group_.size()); }

  /// A task group is what one publish_tasks step publishes. Groups are numbered in the order of the steps, equally on
  /// all ranks.
  std::uint32_t group_of_task(std::uint32_t task) const { return group_[task]; }
  StepId step_of_group(std::uint32_t group) const { return step_[group]; }
  std::uint32_t group_of_step(StepId step) const;
  /// The number of tasks of the group that touch this rank's memory.
  std::uint32_t own_count(std::uint32_t group) const { return own_count_[group]; }

  /// The local ranks whose memory a task touches, each once.
  std::span<const std::uint32_t> ranks(std::uint32_t task) const { return ranks_.of(task); }
  /// The tasks that wait for it.
  std::span<const std::uint32_t> next(std::uint32_t task) const { return next_.of(task); }
  bool is_ordered() const { return !next_.are_empty(); }

  /// Tasks on the application lane that depend on application-lane tasks only: the part of a split tree that runs
  /// before the rest.
  std::span<const std::uint32_t> front() const { return front_; }

 private:
  std::vector<std::uint32_t> group_;
  std::vector<StepId> step_;
  std::vector<std::uint32_t> own_count_;
  plan::Lists<std::uint32_t> ranks_;
  plan::Lists<std::uint32_t> next_;
  std::vector<std::uint32_t> front_;
};

}  // namespace penstock::engine
