// simulated_seconds(): an event simulation. Every core, injection and link is a queue that serves work in the order in
// which it becomes ready, so all that it needs to know is when it is free next.
#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "cost_model/alike_nodes.hpp"
#include "cost_model/prices.hpp"
#include "penstock/cost_model.hpp"
#include "penstock/error.hpp"
#include "plan/order.hpp"
#include "plan/step_graph.hpp"
#include "plan/tasks.hpp"

namespace penstock::cost_model {

using plan::LinkKey;
using plan::StepGraph;

namespace {

thread_local std::uint64_t simulated_by_this_thread = 0;

// Time: double, or Cost for the terms along the critical path.
template <class Time>
class PricedRun {
 public:
  /// The plans of all ranks, or of those of some nodes.
  PricedRun(std::span<const Plan> plans, const Team& team, const Machine& machine)
      : team_(team), machine_(machine), prices_{machine}, graph_(plans, team.node_of_rank), steps_(graph_.size()) {
    simulated_by_this_thread += graph_.size();
    place_cores();
    for (StepIndex index = 0; index < steps_.size(); ++index)
      steps_[index] = {.waits = step_of(index).dependency_count, .tasks_left = graph_.tasks_of(index).size()};
    for (const StepGraph::Task& task : graph_.tasks()) task_waits_.push_back(task.waits);
  }

  /// Matches messages with other nodes among themselves, as if all nodes did the same at the same time: what a rank
  /// sends to the rank at some place on another node, the rank at that place on its own node receives. False if some
  /// are left.
  bool close() {
    std::vector<std::int32_t> places(static_cast<std::size_t>(team_.size()));
    std::vector<std::int32_t> next(cores_of_node_.size());
    for (std::int32_t rank = 0; rank < team_.size(); ++rank)
      places[static_cast<std::size_t>(rank)] = next[node_of(rank)]++;
    const auto place = [&](std::int32_t rank) { return places[static_cast<std::size_t>(rank)]; };
    std::map<std::tuple<std::size_t, LinkKey, bool>, std::vector<StepIndex>> waiting;  // by node; true: producers
    for (const StepIndex index : graph_.unmatched()) {
      const Step& step = step_of(index);
      LinkKey link = *plan::link_key(step, graph_.rank(index));
      link.from = place(link.from);
      link.to = place(link.to);
      const bool produces = !plan::consumes(step);
      const std::size_t node = node_of(graph_.rank(index));
      std::vector<StepIndex>& others = waiting[{node, link, !produces}];
      const auto same_size = std::ranges::find_if(others, [&](StepIndex other) {
        return std::max(step_of(other).from.size_bytes, step_of(other).to.size_bytes) ==
               std::max(step.from.size_bytes, step.to.size_bytes);
      });
      const auto other = same_size != others.end() ? same_size : others.begin();
      if (other == others.end()) {
        waiting[{node, link, produces}].push_back(index);
        continue;
      }
      graph_.set_partner(index, *other);
      graph_.set_partner(*other, index);
      others.erase(other);
    }
    // A receive that is left stands beside one that has a sender: the senders do the same.
    for (const auto& [key, left] : waiting) {
      const auto& [node, link, produces] = key;
      for (const StepIndex receive : left) {
        if (produces || link.is_signal) return false;
        StepIndex alike = kNone;
        for (StepIndex index = 0; index < steps_.size() && alike == kNone; ++index) {
          const Step& step = step_of(index);
          if (step.kind == StepKind::send && step.tag == link.tag &&
              step.from.size_bytes == step_of(receive).to.size_bytes && place(graph_.rank(index)) == link.from &&
              place(step.peer) == link.to && graph_.partner(index) != kNone &&
              !team_.same_node(graph_.rank(index), step.peer))
            alike = index;
        }
        if (alike == kNone) return false;
        graph_.set_partner(receive, alike);
        steps_[receive].is_beside = true;
        beside_[alike].push_back(receive);
      }
    }
    return true;
  }
  bool is_closed() const { return graph_.unmatched().empty(); }

  Time run() {
    const std::optional<Time> end = try_run();
    if (!end)
      throw Error(ErrorCode::internal,
                  "simulation: deadlock with " + std::to_string(steps_.size() - completed_) + " steps left");
    return *end;
  }

  /// None if the plans deadlock, or take more than `most_seconds`.
  std::optional<Time> try_run(double most_seconds = std::numeric_limits<double>::infinity()) {
    for (StepIndex step = 0; step < steps_.size(); ++step)
      if (steps_[step].waits == 0) at(Time{}, What::start, step);
    Time last{};
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      if (seconds_of(now_) > most_seconds) return std::nullopt;
      last = std::max(last, now_);
      handle(event);
    }
    if (completed_ < steps_.size()) return std::nullopt;
    return last;
  }

 private:
  using StepIndex = StepGraph::Index;
  static constexpr StepIndex kNone = StepGraph::kNone;

  enum class What : std::uint8_t {
    start,     // the step's dependencies are complete
    inject,    // a message is ready to leave its process
    depart,    // ... its node
    enter,     // its first byte reaches the link of the other node
    arrive,    // all of it has
    offer,     // a message inside a node can be taken
    task_end,  // `index` is a task
    end        // the step is complete
  };

  struct State {
    std::uint32_t waits = 0;
    bool is_beside = false;  // a receive whose partner sends to another one: it has the same sender elsewhere
    std::size_t tasks_left = 0;
    std::optional<Time> started{};
    std::optional<Time> ready{};  // of a message: when it is ready for the receiver
    Time left{};                  // of a message: when its last byte leaves the process
  };
  struct Event {
    Time time;
    StepIndex index;
    What what;
    friend bool operator>(const Event& a, const Event& b) {
      return std::tie(a.time, a.index, a.what) > std::tie(b.time, b.index, b.what);
    }
  };
  const Step& step_of(StepIndex index) const { return graph_.step(index); }
  State& partner_of(StepIndex index) { return steps_[graph_.partner(index)]; }
  std::size_t node_of(std::int32_t rank) const {
    return static_cast<std::size_t>(team_.node_of_rank[static_cast<std::size_t>(rank)]);
  }
  bool is_far(std::int32_t a, std::int32_t b) const {
    return !team_.domain_of_rank.empty() &&
           team_.domain_of_rank[static_cast<std::size_t>(a)] != team_.domain_of_rank[static_cast<std::size_t>(b)];
  }
  void at(Time time, What what, std::size_t index) { events_.push({time, index, what}); }

  // Ranks beyond the cores of their node share cores, in turn.
  void place_cores() {
    const std::size_t nodes =
        team_.node_of_rank.empty() ? 0 : static_cast<std::size_t>(*std::ranges::max_element(team_.node_of_rank)) + 1;
    cores_of_node_.resize(nodes);
    for (std::int32_t rank = 0; rank < team_.size(); ++rank) {
      std::vector<std::size_t>& cores = cores_of_node_[node_of(rank)];
      const auto most = static_cast<std::size_t>(std::max(1, machine_.node.cores));
      const std::size_t local = ranks_on_node_[node_of(rank)]++;
      if (local < most) {
        cores.push_back(core_free_.size());
        core_free_.emplace_back();
      }
      core_of_rank_.push_back(cores[local % most]);
    }
    process_free_.assign(static_cast<std::size_t>(team_.size()), Time{});
    out_free_.assign(nodes, Time{});
    in_free_.assign(nodes, Time{});
  }

  /// When work of this length on the rank's core ends, if it is ready at `ready`.
  Time on_core(std::int32_t rank, Time ready, Time work) {
    return take(core_free_[core_of_rank_[static_cast<std::size_t>(rank)]], ready, work);
  }
  static Time take(Time& free, Time ready, Time work) {
    free = std::max(free, ready) + work;
    return free;
  }

  void handle(const Event& event) {
    const StepIndex index = event.index;
    switch (event.what) {
      case What::start: return start(index);
      case What::inject: {
        State& state = steps_[index];
        const Time seconds = prices_.on_process(step_of(index).from.size_bytes);
        state.left = take(process_free_[static_cast<std::size_t>(graph_.rank(index))], now_, seconds);
        return at(state.left - seconds, What::depart, index);
      }
      case What::depart: {
        State& state = steps_[index];
        const Step& step = step_of(index);
        const Time seconds = prices_.on_link(step.from.size_bytes);
        const Time end = take(out_free_[node_of(graph_.rank(index))], now_, seconds);
        state.left = std::max(state.left, end);
        if (!prices_.is_eager(step.from.size_bytes)) at(state.left, What::end, index);
        return at(end - seconds + prices_.latency(), What::enter, index);
      }
      case What::enter: {
        const State& state = steps_[index];
        const Step& step = step_of(index);
        const Time end =
            take(in_free_[node_of(graph_.rank(graph_.partner(index)))], now_, prices_.on_link(step.from.size_bytes));
        if (const auto others = beside_.find(index); others != beside_.end())
          for (const StepIndex other : others->second)
            at(std::max(take(in_free_[node_of(graph_.rank(other))], now_, prices_.on_link(step.from.size_bytes)),
                        state.left + prices_.latency()),
               What::arrive, other);
        return at(std::max(end, state.left + prices_.latency()), What::arrive, graph_.partner(index));
      }
      case What::arrive: {
        State& state = steps_[index];
        state.ready = now_;
        if (state.started) at(on_core(graph_.rank(index), now_, prices_.overhead()), What::end, index);
        return;
      }
      case What::offer: {
        State& state = steps_[index];
        state.ready = now_;
        if (partner_of(index).started) receive_inside(graph_.partner(index));
        return;
      }
      case What::task_end: return end_task(index);
      case What::end: return end(index);
    }
  }

  void start(StepIndex index) {
    State& state = steps_[index];
    const Step& step = step_of(index);
    state.started = now_;
    switch (step.kind) {
      case StepKind::send:
        return team_.same_node(graph_.rank(index), step.peer) ? send_inside(index) : send_between(index);
      case StepKind::recv: return receive(index);
      case StepKind::compute: {
        if (plan::takes_message(step)) return receive(index);
        const bool far = step.source != StepSource::local && is_far(graph_.rank(index), step.peer);
        return at(on_core(graph_.rank(index), now_, prices_.compute(step, far)), What::end, index);
      }
      case StepKind::signal:
        state.ready = now_;
        if (partner_of(index).started) see(graph_.partner(index));
        return at(now_, What::end, index);
      case StepKind::wait:
        if (partner_of(index).ready) see(index);
        return;
      case StepKind::publish_tasks:
        if (state.tasks_left == 0) return at(now_, What::end, index);
        for (const std::size_t task : graph_.tasks_of(index)) release_task(task);
        return;
    }
  }

  void see(StepIndex wait) { at(on_core(graph_.rank(wait), now_, prices_.flag()), What::end, wait); }

  void send_between(StepIndex index) {
    State& state = steps_[index];
    const Time handed = on_core(graph_.rank(index), now_, prices_.overhead());
    if (prices_.is_eager(step_of(index).from.size_bytes)) {
      at(handed, What::end, index);
      return at(handed, What::inject, index);
    }
    state.ready = handed + prices_.latency();
    if (partner_of(index).started) shake_hands(index);
  }

  void shake_hands(StepIndex send) {
    const Time answered = std::max(*steps_[send].ready, *partner_of(send).started);
    at(answered + prices_.latency(), What::inject, send);
  }

  void send_inside(StepIndex index) {
    State& state = steps_[index];
    const Step& step = step_of(index);
    const bool is_read = prices_.is_read(step.from.size_bytes, team_.single_copy);
    if (is_read) {
      state.ready = now_;
    } else {
      const Time seconds = prices_.copy(step.from.size_bytes, is_far(graph_.rank(index), step.peer));
      const Time end = on_core(graph_.rank(index), now_, seconds);
      at(end, What::end, index);
      // The receiver copies the first part of a long message out while the sender copies the next one in.
      return at(step.from.size_bytes > machine_.node.message_bytes ? end - seconds : end, What::offer, index);
    }
    if (partner_of(index).started) receive_inside(graph_.partner(index));
  }

  void receive(StepIndex index) {
    const State& state = steps_[index];
    const State& sender = partner_of(index);
    const Step& step = step_of(index);
    if (team_.same_node(graph_.rank(index), step.peer)) {
      if (sender.ready) receive_inside(index);
    } else if (state.ready) {
      at(on_core(graph_.rank(index), now_, prices_.overhead()), What::end, index);
    } else if (sender.started && !state.is_beside && !prices_.is_eager(step.to.size_bytes)) {
      shake_hands(graph_.partner(index));
    }
  }

  void receive_inside(StepIndex index) {
    const std::uint64_t bytes = plan::consumed_bytes(step_of(index));
    const std::int32_t rank = graph_.rank(index);
    if (prices_.is_read(bytes, team_.single_copy)) {
      const Time end = on_core(rank, now_, prices_.flag() + prices_.remote_read(bytes));
      at(end, What::end, index);
      at(end, What::end, graph_.partner(index));
      return;
    }
    // A core that waits for a message that is still being copied in does nothing else.
    at(on_core(rank, now_, prices_.flag() + prices_.copy(bytes, is_far(rank, step_of(index).peer))), What::end, index);
  }

  void release_task(std::size_t index) {
    if (--task_waits_[index] > 0) return;
    const StepGraph::Task& which = graph_.tasks()[index];
    const Plan& plan = graph_.plan_of(which);
    const SharedTask& task = plan.tasks[which.number];
    const std::vector<std::size_t>& cores = cores_of_node_[which.node];
    const std::size_t core =
        *std::ranges::min_element(cores, [&](std::size_t a, std::size_t b) { return core_free_[a] < core_free_[b]; });
    at(take(core_free_[core], now_,
            prices_.task(plan::sources(plan, task)[0].region.size_bytes, task.source_count, task.target_count)),
       What::task_end, index);
  }

  void end_task(std::size_t index) {
    for (const std::size_t next : graph_.tasks()[index].next) release_task(next);
    for (const StepIndex publisher : graph_.tasks()[index].publishers)
      if (--steps_[publisher].tasks_left == 0) at(now_, What::end, publisher);
  }

  void end(StepIndex index) {
    ++completed_;
    for (const StepIndex next : graph_.next(index))
      if (--steps_[next].waits == 0) at(now_, What::start, next);
  }

  const Team& team_;
  const Machine& machine_;
  Prices<Time> prices_;
  StepGraph graph_;
  std::vector<State> steps_;
  std::unordered_map<StepIndex, std::vector<StepIndex>> beside_;  // receives, by send
  std::vector<std::size_t> task_waits_;
  std::vector<std::vector<std::size_t>> cores_of_node_;
  std::unordered_map<std::size_t, std::size_t> ranks_on_node_;
  std::vector<std::size_t> core_of_rank_;
  std::vector<Time> core_free_;
  std::vector<Time> process_free_;
  std::vector<Time> out_free_;  // by node
  std::vector<Time> in_free_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::size_t completed_ = 0;
  Time now_{};
};

}  // namespace
}  // namespace penstock::cost_model

namespace penstock {

namespace {

template <class Time>
Time simulated(std::span<const Plan> plans, const Team& team, const Machine& machine) {
  cost_model::PricedRun<Time> run(plans, team, machine);
  if (!run.is_closed()) throw Error(ErrorCode::internal, "simulation: a message or signal has no partner");
  return run.run();
}

}  // namespace

double simulated_seconds(std::span<const Plan> plans, const Team& team, const Machine& machine) {
  return simulated<double>(plans, team, machine);
}

Cost simulated_cost(std::span<const Plan> plans, const Team& team, const Machine& machine) {
  return simulated<Cost>(plans, team, machine);
}

template <class Time>
std::optional<Time> cost_model::time_of_alike_nodes(std::span<const Plan> plans, const Team& team,
                                                    const Machine& machine, double most_seconds) {
  PricedRun<Time> run(plans, team, machine);
  if (!run.close()) return std::nullopt;
  return run.try_run(most_seconds);
}

std::uint64_t cost_model::simulated_steps() noexcept { return simulated_by_this_thread; }
void cost_model::add_simulated_steps(std::uint64_t steps) noexcept { simulated_by_this_thread += steps; }

double cost_model::least_seconds_of(const Plan& plan, const Team& team, const Machine& machine) {
  const Prices<double> prices{machine};
  double injected = 0;
  for (const Step& step : plan.steps)
    if (step.kind == StepKind::send && !team.same_node(plan.rank, step.peer))
      injected += prices.on_process(step.from.size_bytes);
  return injected;
}

template std::optional<double> cost_model::time_of_alike_nodes<double>(std::span<const Plan>, const Team&,
                                                                       const Machine&, double);
template std::optional<Cost> cost_model::time_of_alike_nodes<Cost>(std::span<const Plan>, const Team&, const Machine&,
                                                                   double);

}  // namespace penstock
