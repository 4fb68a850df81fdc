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

#include "penstock/cost_model.hpp"
#include "penstock/error.hpp"
#include "plan/alike_nodes.hpp"
#include "plan/order.hpp"
#include "plan/prices.hpp"
#include "plan/tasks.hpp"

namespace penstock::plan {
namespace {

// Time: double, or Cost for the terms along the critical path.
template <class Time>
class PricedRun {
 public:
  /// The plans of all ranks, or of those of some nodes.
  PricedRun(std::span<const Plan> plans, const Team& team, const Machine& machine)
      : plans_(plans), team_(team), machine_(machine), prices_{machine} {
    for (std::size_t at = 0; at < plans.size(); ++at) {
      first_step_.push_back(steps_.size());
      for (StepId id = 0; id < plans[at].steps.size(); ++id)
        steps_.push_back({.plan = static_cast<std::uint32_t>(at), .rank = plans[at].rank, .id = id});
    }
    first_step_.push_back(steps_.size());
    place_cores();
    order_steps();
    match();
    gather_tasks();
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
    std::map<std::tuple<std::size_t, std::int32_t, std::int32_t, std::uint32_t, StepKind, bool>, std::vector<StepIndex>>
        waiting;
    for (const StepIndex index : unmatched_) {
      const Step& step = step_of(index);
      const std::int32_t self = steps_[index].rank;
      const std::optional<StepKind> consumer = consumer_of(step.kind);
      const auto key = [&](bool produces) {
        return std::tuple{node_of(self), place(consumer ? self : step.peer), place(consumer ? step.peer : self),
                          step.tag,      consumer.value_or(step.kind),       produces};
      };
      std::vector<StepIndex>& others = waiting[key(!consumer)];
      const auto same_size = std::ranges::find_if(others, [&](StepIndex other) {
        return std::max(step_of(other).from.size_bytes, step_of(other).to.size_bytes) ==
               std::max(step.from.size_bytes, step.to.size_bytes);
      });
      const auto other = same_size != others.end() ? same_size : others.begin();
      if (other == others.end()) {
        waiting[key(consumer.has_value())].push_back(index);
        continue;
      }
      steps_[index].partner = *other;
      steps_[*other].partner = index;
      others.erase(other);
    }
    // A receive that is left stands beside one that has a sender: the senders do the same.
    for (const auto& [key, left] : waiting) {
      const auto& [node, from, to, tag, kind, produces] = key;
      for (const StepIndex receive : left) {
        if (produces || kind != StepKind::recv) return false;
        StepIndex alike = kNone;
        for (StepIndex index = 0; index < steps_.size() && alike == kNone; ++index) {
          const Step& step = step_of(index);
          if (step.kind == StepKind::send && step.tag == tag &&
              step.from.size_bytes == step_of(receive).to.size_bytes && place(steps_[index].rank) == from &&
              place(step.peer) == to && steps_[index].partner != kNone &&
              !team_.same_node(steps_[index].rank, step.peer))
            alike = index;
        }
        if (alike == kNone) return false;
        steps_[receive].partner = alike;
        steps_[receive].is_beside = true;
        beside_[alike].push_back(receive);
      }
    }
    return true;
  }
  bool is_closed() const { return unmatched_.empty(); }

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
  using StepIndex = std::size_t;
  static constexpr StepIndex kNone = std::numeric_limits<StepIndex>::max();

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
    std::uint32_t plan;  // its place in plans_
    std::int32_t rank;
    StepId id;
    std::uint32_t waits = 0;
    StepIndex partner = kNone;
    bool is_beside = false;  // a receive whose partner sends to another one: it has the same sender elsewhere
    std::uint64_t tasks_left = 0;
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
  struct TaskState {
    std::size_t plan;  // one that has it
    std::uint32_t number;
    std::int32_t node;
    std::size_t waits = 0;
    std::vector<std::size_t> next{};
    std::vector<StepIndex> publishers{};
  };

  const Step& step_of(StepIndex index) const { return plans_[steps_[index].plan].steps[steps_[index].id]; }
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

  void order_steps() {
    std::vector<std::size_t> counts(steps_.size() + 1);
    const auto for_each_edge = [&](const auto& visit) {
      for (StepIndex index = 0; index < steps_.size(); ++index) {
        const std::size_t at = steps_[index].plan;
        for (const StepId earlier : dependencies(plans_[at], steps_[index].id)) visit(first_step_[at] + earlier, index);
      }
    };
    for_each_edge([&](StepIndex before, StepIndex after) {
      ++counts[before + 1];
      ++steps_[after].waits;
    });
    for (std::size_t i = 1; i < counts.size(); ++i) counts[i] += counts[i - 1];
    first_next_ = counts;
    next_.resize(counts.back());
    for_each_edge([&](StepIndex before, StepIndex after) { next_[counts[before]++] = after; });
  }

  void match() {
    struct Key {
      std::int32_t from, to;
      std::uint32_t tag;
      StepKind kind;
      bool operator==(const Key&) const = default;
    };
    struct Hash {
      std::size_t operator()(const Key& key) const {
        std::uint64_t hash = static_cast<std::uint64_t>(key.from) << 40 ^ static_cast<std::uint64_t>(key.to) << 20 ^
                             key.tag << 2 ^ static_cast<std::uint64_t>(key.kind);
        hash *= 0x9E3779B97F4A7C15u;
        return hash ^ hash >> 29;
      }
    };
    std::unordered_map<Key, StepIndex, Hash> open;
    for (StepIndex index = 0; index < steps_.size(); ++index) {
      const Step& step = step_of(index);
      const std::optional<StepKind> consumer = consumer_of(step.kind);
      if (!consumer && !consumes(step.kind)) continue;
      const std::int32_t self = steps_[index].rank;
      const Key key{consumer ? self : step.peer, consumer ? step.peer : self, step.tag, consumer.value_or(step.kind)};
      const auto [other, is_first] = open.try_emplace(key, index);
      if (is_first) continue;
      steps_[index].partner = other->second;
      steps_[other->second].partner = index;
      open.erase(other);
    }
    for (const auto& each : open) unmatched_.push_back(each.second);
    std::ranges::sort(unmatched_);
  }

  // The tasks are the same on all ranks of a node.
  void gather_tasks() {
    std::vector<std::size_t> first_of_node(cores_of_node_.size(), kNone);
    for (std::size_t at = 0; at < plans_.size(); ++at) {
      const Plan& plan = plans_[at];
      if (plan.tasks.empty()) continue;
      const auto node = static_cast<std::int32_t>(node_of(plan.rank));
      std::size_t& first = first_of_node[static_cast<std::size_t>(node)];
      if (first == kNone) {
        first = tasks_.size();
        for (std::uint32_t number = 0; number < plan.tasks.size(); ++number) {
          TaskState& state = tasks_.emplace_back(TaskState{.plan = at, .number = number, .node = node});
          for (const std::uint32_t earlier : plan.tasks[number].after)
            if (earlier != SharedTask::kNone) {
              tasks_[first + earlier].next.push_back(first + number);
              ++state.waits;
            }
        }
      }
      for (StepId id = 0; id < plan.steps.size(); ++id) {
        if (plan.steps[id].kind != StepKind::publish_tasks) continue;
        const TaskGroup& group = plan.task_groups[plan.steps[id].task_group];
        const StepIndex index = first_step_[at] + id;
        for (std::uint32_t number = group.first_task; number < group.first_task + group.task_count; ++number)
          if (touches(plan, plan.tasks[number], plan.rank)) {
            tasks_[first + number].publishers.push_back(index);
            ++tasks_[first + number].waits;
            ++steps_[index].tasks_left;
            published_by_[index].push_back(first + number);
          }
      }
    }
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
    switch (event.what) {
      case What::start: return start(event.index);
      case What::inject: {
        State& state = steps_[event.index];
        const Time seconds = prices_.on_process(step_of(event.index).from.size_bytes);
        state.left = take(process_free_[static_cast<std::size_t>(state.rank)], now_, seconds);
        return at(state.left - seconds, What::depart, event.index);
      }
      case What::depart: {
        State& state = steps_[event.index];
        const Step& step = step_of(event.index);
        const Time seconds = prices_.on_link(step.from.size_bytes);
        const Time end = take(out_free_[node_of(state.rank)], now_, seconds);
        state.left = std::max(state.left, end);
        if (!prices_.is_eager(step.from.size_bytes)) at(state.left, What::end, event.index);
        return at(end - seconds + prices_.latency(), What::enter, event.index);
      }
      case What::enter: {
        const State& state = steps_[event.index];
        const Step& step = step_of(event.index);
        const Time end =
            take(in_free_[node_of(steps_[state.partner].rank)], now_, prices_.on_link(step.from.size_bytes));
        if (const auto others = beside_.find(event.index); others != beside_.end())
          for (const StepIndex other : others->second)
            at(std::max(take(in_free_[node_of(steps_[other].rank)], now_, prices_.on_link(step.from.size_bytes)),
                        state.left + prices_.latency()),
               What::arrive, other);
        return at(std::max(end, state.left + prices_.latency()), What::arrive, state.partner);
      }
      case What::arrive: {
        State& state = steps_[event.index];
        state.ready = now_;
        if (state.started) at(on_core(state.rank, now_, prices_.overhead()), What::end, event.index);
        return;
      }
      case What::offer: {
        State& state = steps_[event.index];
        state.ready = now_;
        if (steps_[state.partner].started) receive_inside(state.partner);
        return;
      }
      case What::task_end: return end_task(event.index);
      case What::end: return end(event.index);
    }
  }

  void start(StepIndex index) {
    State& state = steps_[index];
    const Step& step = step_of(index);
    state.started = now_;
    switch (step.kind) {
      case StepKind::send: return team_.same_node(state.rank, step.peer) ? send_inside(index) : send_between(index);
      case StepKind::recv: return receive(index);
      case StepKind::copy: return work(index, prices_.copy(step.to.size_bytes));
      case StepKind::reduce: return work(index, prices_.combine(step.to.size_bytes));
      case StepKind::reduce_sorted:
        return work(index, prices_.combine_sorted(step.from.size_bytes, step.from.size_bytes / step.to.size_bytes));
      case StepKind::transform: return work(index, prices_.copy(moved_bytes(step)));
      case StepKind::read: return work(index, prices_.copy(step.to.size_bytes, is_far(state.rank, step.peer)));
      case StepKind::unpack: return work(index, prices_.copy(moved_bytes(step), is_far(state.rank, step.peer)));
      case StepKind::signal:
        state.ready = now_;
        if (steps_[state.partner].started) see(state.partner);
        return at(now_, What::end, index);
      case StepKind::wait:
        if (steps_[state.partner].ready) see(index);
        return;
      case StepKind::offer_read:
        state.ready = now_;
        if (steps_[state.partner].started) take_offer(state.partner);
        return;
      case StepKind::remote_read:
        if (steps_[state.partner].ready) take_offer(index);
        return;
      case StepKind::publish_tasks:
        if (state.tasks_left == 0) return at(now_, What::end, index);
        for (const std::size_t task : published_by_[index]) release_task(task);
        return;
    }
  }

  /// The bytes that blocks move. Their hull at the other end can be longer, but one end of a move is dense.
  static std::uint64_t moved_bytes(const Step& step) { return std::min(step.from.size_bytes, step.to.size_bytes); }

  void work(StepIndex index, Time work) { at(on_core(steps_[index].rank, now_, work), What::end, index); }

  void see(StepIndex wait) { at(on_core(steps_[wait].rank, now_, prices_.flag()), What::end, wait); }

  void take_offer(StepIndex reader) {
    const Time end = on_core(steps_[reader].rank, now_, prices_.remote_read(step_of(reader).from.size_bytes));
    at(end, What::end, reader);
    at(end, What::end, steps_[reader].partner);
  }

  void send_between(StepIndex index) {
    State& state = steps_[index];
    const Time handed = on_core(state.rank, now_, prices_.overhead());
    if (prices_.is_eager(step_of(index).from.size_bytes)) {
      at(handed, What::end, index);
      return at(handed, What::inject, index);
    }
    state.ready = handed + prices_.latency();
    if (steps_[state.partner].started) shake_hands(index);
  }

  void shake_hands(StepIndex send) {
    const Time answered = std::max(*steps_[send].ready, *steps_[steps_[send].partner].started);
    at(answered + prices_.latency(), What::inject, send);
  }

  void send_inside(StepIndex index) {
    State& state = steps_[index];
    const Step& step = step_of(index);
    const bool is_read = prices_.is_read(step.from.size_bytes, team_.single_copy);
    if (is_read) {
      state.ready = now_;
    } else {
      const Time seconds = prices_.copy(step.from.size_bytes, is_far(state.rank, step.peer));
      const Time end = on_core(state.rank, now_, seconds);
      at(end, What::end, index);
      // The receiver copies the first part of a long message out while the sender copies the next one in.
      return at(step.from.size_bytes > machine_.node.message_bytes ? end - seconds : end, What::offer, index);
    }
    if (steps_[state.partner].started) receive_inside(state.partner);
  }

  void receive(StepIndex index) {
    const State& state = steps_[index];
    const State& sender = steps_[state.partner];
    const Step& step = step_of(index);
    if (team_.same_node(state.rank, step.peer)) {
      if (sender.ready) receive_inside(index);
    } else if (state.ready) {
      at(on_core(state.rank, now_, prices_.overhead()), What::end, index);
    } else if (sender.started && !state.is_beside && !prices_.is_eager(step.to.size_bytes)) {
      shake_hands(state.partner);
    }
  }

  void receive_inside(StepIndex index) {
    const State& state = steps_[index];
    const Step& step = step_of(index);
    if (prices_.is_read(step.to.size_bytes, team_.single_copy)) {
      const Time end = on_core(state.rank, now_, prices_.flag() + prices_.remote_read(step.to.size_bytes));
      at(end, What::end, index);
      at(end, What::end, state.partner);
      return;
    }
    // A core that waits for a message that is still being copied in does nothing else.
    at(on_core(state.rank, now_, prices_.flag() + prices_.copy(step.to.size_bytes, is_far(state.rank, step.peer))),
       What::end, index);
  }

  void release_task(std::size_t index) {
    TaskState& state = tasks_[index];
    if (--state.waits > 0) return;
    const Plan& plan = plans_[state.plan];
    const SharedTask& task = plan.tasks[state.number];
    const std::vector<std::size_t>& cores = cores_of_node_[static_cast<std::size_t>(state.node)];
    const std::size_t core =
        *std::ranges::min_element(cores, [&](std::size_t a, std::size_t b) { return core_free_[a] < core_free_[b]; });
    at(take(core_free_[core], now_,
            prices_.task(sources(plan, task)[0].region.size_bytes, task.source_count, task.target_count)),
       What::task_end, index);
  }

  void end_task(std::size_t index) {
    for (const std::size_t next : tasks_[index].next) release_task(next);
    for (const StepIndex publisher : tasks_[index].publishers)
      if (--steps_[publisher].tasks_left == 0) at(now_, What::end, publisher);
  }

  void end(StepIndex index) {
    ++completed_;
    for (std::size_t i = first_next_[index]; i < first_next_[index + 1]; ++i)
      if (--steps_[next_[i]].waits == 0) at(now_, What::start, next_[i]);
  }

  std::span<const Plan> plans_;
  const Team& team_;
  const Machine& machine_;
  Prices<Time> prices_;
  std::vector<State> steps_;
  std::vector<StepIndex> first_step_;    // by rank
  std::vector<std::size_t> first_next_;  // by step, into next_
  std::vector<StepIndex> next_;
  std::unordered_map<StepIndex, std::vector<StepIndex>> beside_;  // receives, by send
  std::vector<StepIndex> unmatched_;  // messages and signals whose other end has no plan here
  std::vector<TaskState> tasks_;
  std::unordered_map<StepIndex, std::vector<std::size_t>> published_by_;  // tasks, by publish_tasks step
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
}  // namespace penstock::plan

namespace penstock {

namespace {

template <class Time>
Time simulated(std::span<const Plan> plans, const Team& team, const Machine& machine) {
  plan::PricedRun<Time> run(plans, team, machine);
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
std::optional<Time> plan::time_of_alike_nodes(std::span<const Plan> plans, const Team& team, const Machine& machine,
                                              double most_seconds) {
  PricedRun<Time> run(plans, team, machine);
  if (!run.close()) return std::nullopt;
  return run.try_run(most_seconds);
}

double plan::least_seconds_of(const Plan& plan, const Team& team, const Machine& machine) {
  const Prices<double> prices{machine};
  double injected = 0;
  for (const Step& step : plan.steps)
    if (step.kind == StepKind::send && !team.same_node(plan.rank, step.peer))
      injected += prices.on_process(step.from.size_bytes);
  return injected;
}

template std::optional<double> plan::time_of_alike_nodes<double>(std::span<const Plan>, const Team&, const Machine&,
                                                                 double);
template std::optional<Cost> plan::time_of_alike_nodes<Cost>(std::span<const Plan>, const Team&, const Machine&,
                                                             double);

}  // namespace penstock
