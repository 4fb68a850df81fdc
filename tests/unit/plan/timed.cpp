#include "timed.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "penstock/error.hpp"
#include "plan/order.hpp"
#include "plan/step_graph.hpp"
#include "plan/tasks.hpp"

namespace penstock::plan {
namespace {

using ActionId = std::size_t;
constexpr int kAnyRank = -1;

// The start or the end of a step, or a task. Only ends and tasks can be work.
struct Action {
  // Of work: its ranks, and how many edges of how many bytes.
  int from = 0;
  int to = 0;
  int level = 0;  // 0 outside of trees
  int tree_levels = 0;
  std::int64_t edges = 0;
  std::uint64_t bytes = 0;
  Lane lane = Lane::progress;
  int rank = kAnyRank;  // on Lane::application: the rank whose core it needs
  int node = 0;
  std::size_t waits = 0;
  std::vector<ActionId> next{};
};

// What must be complete before what, across all ranks.
class Graph {
 public:
  Graph(std::span<const Plan> plans, std::span<const std::int32_t> nodes) : nodes_(nodes) {
    const StepGraph graph(plans, nodes);
    if (!graph.unmatched().empty())
      throw Error(ErrorCode::internal, "timed simulation: a message or signal has no partner");
    actions_.resize(2 * graph.size());
    for (StepGraph::Index step = 0; step < graph.size(); ++step) add_step(graph, step);
    const ActionId first = actions_.size();
    for (const StepGraph::Task& task : graph.tasks()) add_task(graph.plan_of(task), task);
    for (std::size_t task = 0; task < graph.tasks().size(); ++task) {
      for (const std::size_t next : graph.tasks()[task].next) order(first + task, first + next);
      for (const StepGraph::Index publisher : graph.tasks()[task].publishers) {
        order(start_of(publisher), first + task);
        order(first + task, end_of(publisher));
      }
    }
  }

  const std::vector<Action>& actions() const { return actions_; }
  std::span<const std::int32_t> nodes() const { return nodes_; }

 private:
  static ActionId start_of(StepGraph::Index step) { return 2 * step; }
  static ActionId end_of(StepGraph::Index step) { return 2 * step + 1; }

  void order(ActionId before, ActionId after) {
    actions_[before].next.push_back(after);
    ++actions_[after].waits;
  }

  void add_step(const StepGraph& graph, StepGraph::Index index) {
    const Step& step = graph.step(index);
    const std::int32_t self = graph.rank(index);
    order(start_of(index), end_of(index));
    for (const StepGraph::Index later : graph.next(index)) order(end_of(index), start_of(later));
    if (takes_message(step) || touches(step).reads_remote) {
      Action& action = actions_[end_of(index)];
      action = {.from = step.peer,
                .to = self,
                .level = step.level,
                .tree_levels = graph.plan(index).tree_levels,
                .edges = 1,
                .bytes = consumed_bytes(step),
                .lane = step.lane,
                .rank = self,
                .node = nodes_[static_cast<std::size_t>(self)],
                .waits = action.waits,
                .next = std::move(action.next)};
    }
    if (!consumes(step)) return;
    order(start_of(graph.partner(index)), end_of(index));
    if (takes_message(step)) order(end_of(index), end_of(graph.partner(index)));
  }

  // It runs between the start and the end of the publish_tasks steps of its ranks.
  void add_task(const Plan& plan, const StepGraph::Task& which) {
    const SharedTask& task = plan.tasks[which.number];
    const std::span<const RankRegion> from = sources(plan, task);
    const std::span<const RankRegion> to = targets(plan, task);
    const auto other = std::ranges::find_if(from, [&](const RankRegion& each) { return each.rank != to[0].rank; });
    actions_.push_back({.from = other == from.end() ? to[0].rank : other->rank,
                        .to = to[0].rank,
                        .level = task.level,
                        .tree_levels = plan.tree_levels,
                        .edges = edge_count(from, to),
                        .bytes = to[0].region.size_bytes,
                        .lane = task.lane,
                        .node = static_cast<std::int32_t>(which.node)});
  }

  // A sum of k contributions takes k - 1 edges, and each target beyond the first takes one more.
  static std::int64_t edge_count(std::span<const RankRegion> from, std::span<const RankRegion> to) {
    if (from.size() > 1) return static_cast<std::int64_t>(from.size() + to.size()) - 2;
    return std::ranges::count_if(to, [&](const RankRegion& each) { return each.rank != from[0].rank; });
  }

  std::span<const std::int32_t> nodes_;
  std::vector<Action> actions_;
};

// One run of a graph: ready actions start when a core is free, earlier levels first.
class Run {
 public:
  Run(const Graph& graph, const Timing& timing)
      : actions_(graph.actions()), nodes_(graph.nodes()), timing_(timing), core_is_free_(nodes_.size(), true) {
    const int node_count = nodes_.empty() ? 0 : *std::ranges::max_element(nodes_) + 1;
    free_progress_cores_.assign(static_cast<std::size_t>(node_count), timing.progress_cores);
    state_.resize(actions_.size());
    for (ActionId id = 0; id < actions_.size(); ++id) {
      const Action& action = actions_[id];
      State& state = state_[id];
      state.waits = action.waits;
      if (action.edges > 0) state.cost = static_cast<double>(action.edges) * edge_cost(action);
      if (state.cost == 0) continue;
      const bool both = timing.order == LevelOrder::to_root_and_back;
      const bool to_root = timing.order == LevelOrder::to_root || (both && action.from > action.to);
      state.is_before_computation = to_root && action.lane == Lane::application;
      if (state.is_before_computation) ++left_before_computation_;
      if (action.level == 0 || action.tree_levels == 0) continue;
      state.turn = to_root ? action.tree_levels - action.level + 1 : action.level + (both ? action.tree_levels : 0);
      ++left_in_turn_[state.turn];
    }
  }

  double run() {
    if (left_before_computation_ == 0) begin_computation();
    std::vector<ActionId> first;
    for (ActionId id = 0; id < actions_.size(); ++id)
      if (actions_[id].waits == 0) first.push_back(id);
    make_ready(std::move(first));
    for (start_ready(); !running_.empty(); start_ready())
      for (now_ = running_.top().end; !running_.empty() && running_.top().end == now_;) {
        const Running ended = running_.top();
        running_.pop();
        finish(ended);
      }
    if (completed_ < actions_.size())
      throw Error(ErrorCode::internal, "timed simulation: deadlock with " +
                                           std::to_string(actions_.size() - completed_) +
                                           " starts and ends of steps left");
    return now_;
  }

 private:
  static constexpr ActionId kComputation = std::numeric_limits<ActionId>::max();
  static constexpr int kProgressCore = -1;

  struct State {
    double cost = 0;
    std::size_t waits = 0;
    int turn = 0;  // of the level, from 1; 0 outside of trees
    bool is_before_computation = false;
  };
  struct Running {
    double end;
    ActionId action;
    int core;  // a rank, or kProgressCore
    friend bool operator>(const Running& a, const Running& b) {
      return std::tie(a.end, a.action) > std::tie(b.end, b.action);
    }
  };

  double edge_cost(const Action& action) const {
    if (timing_.edge_cost) return timing_.edge_cost(action.lane, action.bytes);
    return action.bytes > 0 ? 1 : 0;
  }

  void begin_computation() { running_.push({now_ + timing_.computation, kComputation, kProgressCore}); }

  // Actions that have become ready. Those that take no time complete at once.
  void make_ready(std::vector<ActionId> ids) {
    while (!ids.empty()) {
      const ActionId id = ids.back();
      ids.pop_back();
      if (state_[id].cost > 0)
        ready_.emplace(state_[id].turn, id);
      else
        complete(id, ids);
    }
  }

  void complete(ActionId id, std::vector<ActionId>& released) {
    ++completed_;
    for (const ActionId next : actions_[id].next)
      if (--state_[next].waits == 0) released.push_back(next);
  }

  void start_ready() {
    for (auto it = ready_.begin(); it != ready_.end();) {
      const auto [turn, id] = *it;
      if (timing_.levels_in_sequence && turn > 0 && turn > left_in_turn_.begin()->first) return;
      if (const std::optional<int> core = take_core(id)) {
        running_.push({now_ + state_[id].cost, id, *core});
        it = ready_.erase(it);
      } else {
        ++it;
      }
    }
  }

  std::optional<int> take_core(ActionId id) {
    const Action& action = actions_[id];
    if (action.lane == Lane::progress && timing_.progress_cores > 0) {
      int& free_cores = free_progress_cores_[static_cast<std::size_t>(action.node)];
      if (free_cores > 0) {
        --free_cores;
        return kProgressCore;
      }
      if (!timing_.waiting_helps) return std::nullopt;
    }
    if (!has_computed_ && !state_[id].is_before_computation) return std::nullopt;
    for (std::size_t rank = 0; rank < nodes_.size(); ++rank) {
      const bool may = action.rank == kAnyRank ? nodes_[rank] == action.node : static_cast<int>(rank) == action.rank;
      if (!may || !core_is_free_[rank]) continue;
      core_is_free_[rank] = false;
      return static_cast<int>(rank);
    }
    return std::nullopt;
  }

  void finish(const Running& ended) {
    if (ended.action == kComputation) {
      has_computed_ = true;
      return;
    }
    const State& state = state_[ended.action];
    if (ended.core == kProgressCore)
      ++free_progress_cores_[static_cast<std::size_t>(actions_[ended.action].node)];
    else
      core_is_free_[static_cast<std::size_t>(ended.core)] = true;
    if (state.turn > 0 && --left_in_turn_[state.turn] == 0) left_in_turn_.erase(state.turn);
    if (state.is_before_computation && --left_before_computation_ == 0) begin_computation();
    std::vector<ActionId> released;
    complete(ended.action, released);
    make_ready(std::move(released));
  }

  const std::vector<Action>& actions_;
  std::span<const std::int32_t> nodes_;
  const Timing& timing_;
  std::vector<State> state_;                    // by action
  std::set<std::pair<int, ActionId>> ready_{};  // by turn
  std::priority_queue<Running, std::vector<Running>, std::greater<>> running_{};
  std::map<int, std::size_t> left_in_turn_{};
  std::vector<int> free_progress_cores_;  // by node
  std::vector<bool> core_is_free_;        // by rank
  std::size_t left_before_computation_ = 0;
  std::size_t completed_ = 0;
  bool has_computed_ = false;
  double now_ = 0;
};

}  // namespace

std::vector<double> makespans(std::span<const Plan> plans, std::span<const std::int32_t> node_of_rank,
                              std::span<const Timing> timings) {
  const Graph graph(plans, node_of_rank);
  std::vector<double> times;
  for (const Timing& timing : timings) times.push_back(Run(graph, timing).run());
  return times;
}

}  // namespace penstock::plan
