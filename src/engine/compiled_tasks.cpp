#include "engine/compiled_tasks.hpp"

#include <algorithm>
#include <string>

#include "engine/task_table.hpp"
#include "penstock/error.hpp"
#include "plan/region.hpp"
#include "plan/rules.hpp"
#include "plan/tasks.hpp"

namespace penstock::engine {
namespace {

constexpr std::uint32_t kNoGroup = ~0u;

}  // namespace

void reject_plan(const Plan& plan, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, "the plan '" + plan.algorithm + "' cannot be run: " + why);
}

CompiledTasks::CompiledTasks(const Plan& plan, const Team& team) : group_(plan.tasks.size(), kNoGroup) {
  if (plan.tasks.empty()) return;
  if (!team.single_copy) reject_plan(plan, "it has shared tasks, and the ranks cannot read each other's memory");
  if (plan.tasks.size() > kMaxTasks)
    reject_plan(
        plan, "it has " + std::to_string(plan.tasks.size()) + " shared tasks, more than " + std::to_string(kMaxTasks));

  std::vector<std::uint32_t> local(static_cast<std::size_t>(team.size()), kNoGroup);
  std::uint32_t local_count = 0;
  for (int rank = 0; rank < team.size(); ++rank)
    if (team.same_node(rank, team.rank)) local[static_cast<std::size_t>(rank)] = local_count++;

  for (StepId id = 0; id < plan.steps.size(); ++id) {
    const Step& step = plan.steps[id];
    if (step.kind != StepKind::publish_tasks) continue;
    const TaskGroup& group = plan.task_groups[step.task_group];
    for (std::uint32_t task = group.first_task; task < group.first_task + group.task_count; ++task) {
      if (group_[task] != kNoGroup) reject_plan(plan, "task " + std::to_string(task) + " is published twice");
      group_[task] = static_cast<std::uint32_t>(step_.size());
    }
    step_.push_back(id);
  }
  if (step_.size() > kMaxTaskGroups)
    reject_plan(plan, "it publishes tasks in " + std::to_string(step_.size()) + " steps, more than " +
                          std::to_string(kMaxTaskGroups));
  own_count_.resize(step_.size());

  const std::uint32_t self = local[static_cast<std::size_t>(team.rank)];
  std::vector<std::uint32_t> ranks;
  std::vector<bool> is_front(plan.tasks.size());
  for (std::uint32_t id = 0; id < plan.tasks.size(); ++id) {
    const SharedTask& task = plan.tasks[id];
    const std::string where = "task " + std::to_string(id) + " ";
    if (group_[id] == kNoGroup) reject_plan(plan, where + "is published by no step");
    if (const std::string broken = plan::violated_task_rule(plan, id, team.node_of_rank); !broken.empty())
      reject_plan(plan, where + broken);
    ranks.clear();
    for (const RankRegion& each : plan::regions(plan, task)) {
      if (each.rank == team.rank && !plan::is_inside(plan::resolved(plan, each.region), plan))
        reject_plan(plan, where + "lies outside of its buffer");
      const std::uint32_t rank = local[static_cast<std::size_t>(each.rank)];
      if (std::ranges::find(ranks, rank) == ranks.end()) ranks.push_back(rank);
    }
    ranks_.add(ranks);
    is_front[id] = task.lane == Lane::application;
    for (const std::uint32_t earlier : task.after)
      is_front[id] = is_front[id] && (earlier == SharedTask::kNone || is_front[earlier]);
    if (std::ranges::find(ranks, self) != ranks.end()) ++own_count_[group_[id]];
    if (is_front[id]) front_.push_back(id);
  }
  next_ = plan::Lists<std::uint32_t>(plan.tasks.size(), [&](const auto& visit) {
    for (std::uint32_t id = 0; id < plan.tasks.size(); ++id)
      for (const std::uint32_t earlier : plan.tasks[id].after)
        if (earlier != SharedTask::kNone) visit(earlier, id);
  });
}

std::uint32_t CompiledTasks::group_of_step(StepId step) const {
  return static_cast<std::uint32_t>(std::find(step_.begin(), step_.end(), step) - step_.begin());
}

}  // namespace penstock::engine
