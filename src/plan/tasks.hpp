// What the tasks of a plan (SharedTask) access.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "penstock/plan.hpp"
#include "plan/order.hpp"

namespace penstock::plan {

inline std::span<const RankRegion> sources(const Plan& plan, const SharedTask& task) {
  return std::span(plan.task_regions).subspan(task.first_region, task.source_count);
}
inline std::span<const RankRegion> targets(const Plan& plan, const SharedTask& task) {
  return std::span(plan.task_regions).subspan(task.first_region + task.source_count, task.target_count);
}
/// Sources and targets.
inline std::span<const RankRegion> regions(const Plan& plan, const SharedTask& task) {
  return std::span(plan.task_regions).subspan(task.first_region, std::size_t{task.source_count} + task.target_count);
}
inline std::span<const SharedTask> tasks(const Plan& plan, const Step& publisher) {
  const TaskGroup& group = plan.task_groups[publisher.task_group];
  return std::span(plan.tasks).subspan(group.first_task, group.task_count);
}
inline bool publishes(const Plan& plan, const Step& step, std::size_t task) {
  return step.kind == StepKind::publish_tasks && plan.task_groups[step.task_group].contains(task);
}
/// Whether the group of a publish_tasks step lies in the plan.
inline bool has_its_tasks(const Plan& plan, const Step& publisher) {
  if (publisher.task_group >= plan.task_groups.size()) return false;
  const TaskGroup& group = plan.task_groups[publisher.task_group];
  return std::uint64_t{group.first_task} + group.task_count <= plan.tasks.size();
}

bool touches(const Plan& plan, const SharedTask& task, int rank);

/// The region of a task in the buffers of the rank whose plan is `owner`, see RankRegion.
inline Region resolved(const Plan& owner, Region region) {
  const bool is_input = region.buffer == Buffer::input;
  if (is_input ? owner.input_bytes > 0 : region.buffer != Buffer::output || owner.output_bytes > 0) return region;
  return {region.offset_bytes + owner.stand_in_offset_bytes, region.size_bytes,
          is_input ? Buffer::output : Buffer::input};
}

/// The part of verify() about tasks, except for the order of publish_tasks and other steps of a rank. One sentence per
/// finding. `plans` must have passed the checks of single steps.
std::vector<std::string> verify_tasks(std::span<const Plan> plans, std::span<const std::int32_t> node_of_rank,
                                      std::uint64_t element_bytes);

/// Adds edges: a publish_tasks step ends after the start of all publish_tasks steps that its tasks wait for. For
/// verified tasks.
void add_task_edges(std::span<const Plan> plans, Events& events);

/// "reduce input[0, 64) of 0, input[0, 64) of 1 to output[0, 64) of 0".
std::string describe(const Plan& plan, const SharedTask& task);

}  // namespace penstock::plan
