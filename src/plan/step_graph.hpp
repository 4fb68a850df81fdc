// The steps of the plans of several ranks as one graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "penstock/plan.hpp"
#include "plan/lists.hpp"

namespace penstock::plan {

/// Steps are numbered plan after plan. The plans must outlive it.
class StepGraph {
 public:
  using Index = std::size_t;
  static constexpr Index kNone = std::numeric_limits<Index>::max();

  struct Node {
    std::uint32_t plan;  ///< its place among the plans
    std::int32_t rank;
    StepId id;
    Index partner = kNone;  ///< the other end of its message or signal
  };
  struct Task {
    std::size_t plan;  ///< one that has it
    std::uint32_t number;
    std::size_t node;
    std::size_t waits = 0;  ///< for other tasks and for publishers
    std::vector<std::size_t> next{};
    std::vector<Index> publishers{};
  };

  /// The plans of all ranks, or of those of some nodes. Without nodes it has no tasks.
  StepGraph(std::span<const Plan> plans, std::span<const std::int32_t> node_of_rank);

  std::size_t size() const { return nodes_.size(); }
  const Plan& plan(Index step) const { return plans_[nodes_[step].plan]; }
  const Step& step(Index step) const { return plan(step).steps[nodes_[step].id]; }
  std::int32_t rank(Index step) const { return nodes_[step].rank; }
  const Plan& plan_of(const Task& task) const { return plans_[task.plan]; }
  StepId id(Index step) const { return nodes_[step].id; }
  Index partner(Index step) const { return nodes_[step].partner; }
  void set_partner(Index step, Index partner) { nodes_[step].partner = partner; }
  /// "rank 1, step 4 (recv …)".
  std::string words(Index step) const;

  /// The steps that depend on the step.
  std::span<const Index> next(Index step) const { return next_.of(step); }
  /// Messages and signals whose other end has no plan here, or that are not the only ones of their tag.
  const std::vector<Index>& unmatched() const { return unmatched_; }
  /// Of all nodes. Ranks of one node have the same tasks, so each is here once.
  const std::vector<Task>& tasks() const { return tasks_; }
  /// The tasks that the step publishes and that touch its rank's memory.
  std::span<const std::size_t> tasks_of(Index step) const {
    const auto found = published_by_.find(step);
    return found == published_by_.end() ? std::span<const std::size_t>() : found->second;
  }

 private:
  void match();
  void gather_tasks(std::span<const std::int32_t> node_of_rank);

  std::span<const Plan> plans_;
  std::vector<Node> nodes_;
  std::vector<Index> first_step_;  // by plan
  Lists<Index> next_;
  std::vector<Index> unmatched_;
  std::vector<Task> tasks_;
  std::unordered_map<Index, std::vector<std::size_t>> published_by_;  // by publish_tasks step
};

}  // namespace penstock::plan
