#include "plan/tasks.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/joined.hpp"
#include "base/ranks_text.hpp"
#include "plan/names.hpp"
#include "plan/region.hpp"
#include "plan/rules.hpp"

namespace penstock::plan {
namespace {

constexpr StepId kNotPublished = PlanBuilder::kNone;

bool same(const SharedTask& a, const SharedTask& b) {
  return a.first_region == b.first_region && a.source_count == b.source_count && a.target_count == b.target_count &&
         a.after == b.after && a.lane == b.lane;
}

// By task: the step of `plan` that publishes it.
std::vector<StepId> publishers_of(const Plan& plan) {
  std::vector<StepId> publisher(plan.tasks.size(), kNotPublished);
  for (StepId id = 0; id < plan.steps.size(); ++id)
    if (const Step& step = plan.steps[id]; step.kind == StepKind::publish_tasks)
      std::fill_n(publisher.begin() + plan.task_groups[step.task_group].first_task, tasks(plan, step).size(), id);
  return publisher;
}

Order order_of_tasks(const Plan& plan) {
  Order order(plan.tasks.size());
  for (std::size_t task = 0; task < plan.tasks.size(); ++task)
    for (const std::uint32_t earlier : plan.tasks[task].after)
      if (earlier != SharedTask::kNone) order.add(earlier, task);
  return order;
}

class TaskVerifier {
 public:
  TaskVerifier(std::span<const Plan> plans, std::span<const std::int32_t> nodes, std::uint64_t element_bytes)
      : plans_(plans), nodes_(nodes), element_bytes_(element_bytes) {}

  std::vector<std::string> run() {
    std::map<std::int32_t, std::size_t> first_of_node;
    for (std::size_t rank = 0; rank < plans_.size(); ++rank) {
      const std::size_t first = first_of_node.emplace(nodes_[rank], rank).first->second;
      if (first == rank) {
        for (std::size_t task = 0; task < plans_[rank].tasks.size(); ++task) check_task(rank, task);
      } else if (!same_tasks(plans_[first], plans_[rank])) {
        found(base::ranks_text(std::array{static_cast<int>(first), static_cast<int>(rank)}) +
              " of one node have different shared tasks");
      }
    }
    if (!findings_.empty()) return findings_;
    for (const auto& [node, first] : first_of_node)
      if (!plans_[first].tasks.empty()) {
        check_publishers(first);
        check_memory(plans_[first]);
      }
    return findings_;
  }

 private:
  void found(std::string finding) { findings_.push_back(std::move(finding)); }

  static bool same_tasks(const Plan& a, const Plan& b) {
    return a.task_regions == b.task_regions &&
           std::equal(a.tasks.begin(), a.tasks.end(), b.tasks.begin(), b.tasks.end(), same);
  }

  std::string where(const Plan& plan, std::size_t task) const {
    return "task " + std::to_string(task) + " (" + describe(plan, plan.tasks[task]) + ")";
  }

  void check_task(std::size_t rank, std::size_t id) {
    const Plan& plan = plans_[rank];
    const SharedTask& task = plan.tasks[id];
    if (const std::string broken = violated_task_rule(plan, id, nodes_); !broken.empty())
      return found("task " + std::to_string(id) + " of rank " + std::to_string(rank) + " " + broken);
    if (task.source_count > 1 && sources(plan, task)[0].region.size_bytes % element_bytes_ != 0)
      found(where(plan, id) + ": not a whole number of elements");
    for (const RankRegion& each : regions(plan, task)) {
      const Plan& owner = plans_[static_cast<std::size_t>(each.rank)];
      const Region region = resolved(owner, each.region);
      if (!is_inside(region, owner))
        found(where(plan, id) + ": reaches beyond the " + std::to_string(buffer_bytes(owner, region.buffer)) +
              " bytes of the " + std::string(name(region.buffer)) + " buffer of rank " + std::to_string(each.rank));
    }
    for (const RankRegion& target : targets(plan, task)) {
      const Region region = resolved(plans_[static_cast<std::size_t>(target.rank)], target.region);
      const RankRegion& source = sources(plan, task)[0];
      const bool is_there = task.source_count == 1 && source.rank == target.rank &&
                            resolved(plans_[static_cast<std::size_t>(source.rank)], source.region) == region;
      if (region.buffer == Buffer::input && !is_there) found(where(plan, id) + ": writes the input");
      std::size_t equal = 0;
      for (const RankRegion& other : regions(plan, task)) {
        const Region against = resolved(plans_[static_cast<std::size_t>(other.rank)], other.region);
        if (other.rank != target.rank || against.buffer != region.buffer) continue;
        if (against == region)
          ++equal;
        else if (overlap(against, region))
          found(where(plan, id) + ": a target overlaps another region in part");
      }
      if (equal > 2) found(where(plan, id) + ": a target is there more than once");
    }
  }

  void check_publishers(std::size_t first) {
    const Plan& plan = plans_[first];
    for (std::size_t rank = 0; rank < plans_.size(); ++rank) {
      if (nodes_[rank] != nodes_[first]) continue;
      std::vector<int> shared(plan.tasks.size());
      for (const Step& step : plans_[rank].steps)
        if (step.kind == StepKind::publish_tasks) {
          const TaskGroup& group = plans_[rank].task_groups[step.task_group];
          for (std::uint32_t i = 0; i < group.task_count; ++i) ++shared[group.first_task + i];
        }
      for (std::size_t id = 0; id < plan.tasks.size(); ++id) {
        if (shared[id] > 1) found(where(plan, id) + ": rank " + std::to_string(rank) + " publishes it twice");
        if (shared[id] == 0 && touches(plan, plan.tasks[id], static_cast<int>(rank)))
          found(where(plan, id) + ": rank " + std::to_string(rank) + " never publishes it");
      }
    }
  }

  struct Access {
    Region region;
    std::int32_t rank;
    std::size_t task;
    bool is_write;
  };

  // Tasks of different publish_tasks steps are ordered by these steps, which verify() checks like all steps of a rank.
  void check_memory(const Plan& plan) {
    const Order order = order_of_tasks(plan);
    std::vector<Access> all;
    for (std::size_t id = 0; id < plan.tasks.size(); ++id) {
      const auto add = [&](const RankRegion& each, bool is_write) {
        const Region region = resolved(plans_[static_cast<std::size_t>(each.rank)], each.region);
        if (region.size_bytes > 0) all.push_back({region, each.rank, id, is_write});
      };
      for (const RankRegion& each : sources(plan, plan.tasks[id])) add(each, false);
      for (const RankRegion& each : targets(plan, plan.tasks[id])) add(each, true);
    }
    std::sort(all.begin(), all.end(), [](const Access& a, const Access& b) {
      return std::tuple(a.rank, a.region.buffer, a.region.offset_bytes) <
             std::tuple(b.rank, b.region.buffer, b.region.offset_bytes);
    });
    std::map<std::int32_t, std::vector<StepId>> publishers;
    std::set<std::pair<std::size_t, std::size_t>> reported;
    std::vector<Access> open;
    for (const Access& access : all) {
      std::erase_if(open, [&](const Access& other) {
        return other.rank != access.rank || other.region.buffer != access.region.buffer ||
               !overlap(other.region, access.region);
      });
      for (const Access& other : open) {
        const auto [first, second] = std::minmax(access.task, other.task);
        if (first == second || (!access.is_write && !other.is_write) || order.is_before(first, second)) continue;
        const auto [publisher, is_new] = publishers.try_emplace(access.rank);
        if (is_new) publisher->second = publishers_of(plans_[static_cast<std::size_t>(access.rank)]);
        if (publisher->second[first] != publisher->second[second]) continue;
        if (reported.emplace(first, second).second)
          found(where(plan, first) + " and " + where(plan, second) +
                " touch the same memory without an order between them");
      }
      open.push_back(access);
    }
  }

  std::span<const Plan> plans_;
  std::span<const std::int32_t> nodes_;
  std::uint64_t element_bytes_;
  std::vector<std::string> findings_;
};

}  // namespace

bool touches(const Plan& plan, const SharedTask& task, int rank) {
  return std::ranges::any_of(regions(plan, task), [&](const RankRegion& each) { return each.rank == rank; });
}

std::vector<std::string> verify_tasks(std::span<const Plan> plans, std::span<const std::int32_t> node_of_rank,
                                      std::uint64_t element_bytes) {
  return TaskVerifier(plans, node_of_rank, element_bytes).run();
}

void add_task_edges(std::span<const Plan> plans, Events& events) {
  std::vector<std::vector<StepId>> publisher;
  for (const Plan& plan : plans) publisher.push_back(publishers_of(plan));
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    const Plan& plan = plans[rank];
    if (plan.tasks.empty()) continue;
    const Order order = order_of_tasks(plan);
    std::set<std::pair<std::size_t, std::pair<StepId, StepId>>> added;
    for (std::size_t id = 0; id < plan.tasks.size(); ++id) {
      if (!touches(plan, plan.tasks[id], static_cast<int>(rank))) continue;
      for (std::size_t needed = 0; needed <= id; ++needed) {
        if (needed != id && !order.is_before(needed, id)) continue;
        for (const RankRegion& each : regions(plan, plan.tasks[needed])) {
          const auto other = static_cast<std::size_t>(each.rank);
          if (other != rank && added.insert({other, {publisher[other][needed], publisher[rank][id]}}).second)
            events.add(events.start(other, publisher[other][needed]), events.end(rank, publisher[rank][id]));
        }
      }
    }
  }
}

std::string describe(const Plan& plan, const SharedTask& task) {
  const auto text_of = [](const RankRegion& each) {
    return describe(each.region) + " of " + std::to_string(each.rank);
  };
  return (task.source_count > 1 ? "reduce " : "copy ") + base::joined(sources(plan, task), ", ", text_of) + " to " +
         base::joined(targets(plan, task), ", ", text_of);
}

}  // namespace penstock::plan
