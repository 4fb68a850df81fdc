#include "plan/step_graph.hpp"

#include <algorithm>

#include "plan/names.hpp"
#include "plan/order.hpp"
#include "plan/tasks.hpp"

namespace penstock::plan {

StepGraph::StepGraph(std::span<const Plan> plans, std::span<const std::int32_t> node_of_rank) : plans_(plans) {
  for (std::size_t at = 0; at < plans.size(); ++at) {
    first_step_.push_back(nodes_.size());
    for (StepId id = 0; id < plans[at].steps.size(); ++id)
      nodes_.push_back({static_cast<std::uint32_t>(at), plans[at].rank, id});
  }
  next_ = Lists<Index>(size(), [&](const auto& visit) {
    for (Index index = 0; index < size(); ++index)
      for (const StepId earlier : dependencies(plan(index), id(index)))
        visit(first_step_[nodes_[index].plan] + earlier, index);
  });
  match();
  if (!node_of_rank.empty()) gather_tasks(node_of_rank);
}

std::string StepGraph::words(Index index) const {
  return "rank " + std::to_string(rank(index)) + ", step " + std::to_string(id(index)) + " (" +
         describe(plan(index), step(index)) + ")";
}

// Sorting takes half the memory of a hash table, and there can be millions of steps.
void StepGraph::match() {
  std::vector<std::pair<LinkKey, Index>> ends;
  for (Index index = 0; index < size(); ++index)
    if (const auto key = link_key(step(index), rank(index))) ends.emplace_back(*key, index);
  std::ranges::sort(ends);
  for (std::size_t at = 0, end = 0; at < ends.size(); at = end) {
    while (end < ends.size() && ends[end].first == ends[at].first) ++end;
    const Index first = ends[at].second;
    const Index last = ends[end - 1].second;
    if (end - at == 2 && produces(step(first)) != produces(step(last))) {
      set_partner(first, last);
      set_partner(last, first);
    } else {
      for (std::size_t i = at; i < end; ++i) unmatched_.push_back(ends[i].second);
    }
  }
  std::ranges::sort(unmatched_);
}

void StepGraph::gather_tasks(std::span<const std::int32_t> node_of_rank) {
  std::unordered_map<std::int32_t, std::size_t> first_of_node;
  for (std::size_t at = 0; at < plans_.size(); ++at) {
    const Plan& plan = plans_[at];
    if (plan.tasks.empty()) continue;
    const std::int32_t node = node_of_rank[static_cast<std::size_t>(plan.rank)];
    const auto [entry, is_first] = first_of_node.try_emplace(node, tasks_.size());
    const std::size_t first = entry->second;
    for (std::uint32_t number = 0; is_first && number < plan.tasks.size(); ++number) {
      Task& task = tasks_.emplace_back(Task{.plan = at, .number = number, .node = static_cast<std::size_t>(node)});
      for (const std::uint32_t earlier : plan.tasks[number].after)
        if (earlier != SharedTask::kNone) {
          tasks_[first + earlier].next.push_back(first + number);
          ++task.waits;
        }
    }
    for (StepId id = 0; id < plan.steps.size(); ++id) {
      if (plan.steps[id].kind != StepKind::publish_tasks) continue;
      const TaskGroup& group = plan.task_groups[plan.steps[id].task_group];
      const Index index = first_step_[at] + id;
      for (std::uint32_t number = group.first_task; number < group.first_task + group.task_count; ++number)
        if (touches(plan, plan.tasks[number], plan.rank)) {
          tasks_[first + number].publishers.push_back(index);
          ++tasks_[first + number].waits;
          published_by_[index].push_back(first + number);
        }
    }
  }
}

}  // namespace penstock::plan
