#include "simulate.hpp"

#include <array>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "kernels/arithmetic.hpp"
#include "kernels/reduce_sorted.hpp"
#include "penstock/error.hpp"
#include "plan/element_types.hpp"
#include "plan/names.hpp"
#include "plan/order.hpp"
#include "plan/region.hpp"
#include "plan/tasks.hpp"

namespace penstock::plan {
namespace {

constexpr std::byte kGarbage{0xcb};

struct StepRef {
  std::size_t rank;
  StepId step;
};

// A message or a signal between two ranks.
struct Channel {
  std::optional<StepRef> producer;  // a send that waits for its receiver
  std::optional<StepRef> consumer;
  std::optional<std::vector<std::byte>> buffered;  // the content of a signal, or of a send that did not wait
};

/// Every target = source 0 (op) (source 1 (op) (...)).
void run_task(const Arithmetic& arithmetic, std::span<const ConstBytes> sources, std::span<const Bytes> targets) {
  std::vector<std::byte> value(sources.back().begin(), sources.back().end());
  if (arithmetic.reproducible && sources.size() > 1)
    kernels::reduce_sorted(arithmetic, sources, value);
  else
    for (std::size_t i = sources.size() - 1; i-- > 0;) kernels::reduce(arithmetic, sources[i], value);
  for (const Bytes& target : targets)
    if (!value.empty()) std::memcpy(target.data(), value.data(), value.size());
}

class Simulation {
 public:
  Simulation(std::span<const Plan> plans, const Arithmetic& arithmetic, std::span<RankMemory> memory,
             std::uint64_t seed)
      : plans_(plans), arithmetic_(arithmetic), memory_(memory), random_(seed) {
    ranks_.resize(plans.size());
    const bool runs_ahead = random_() % 2 == 0;
    for (std::size_t rank = 0; rank < plans.size(); ++rank) {
      const Plan& plan = plans[rank];
      if (memory[rank].input.size() != plan.input_bytes || memory[rank].output.size() != plan.output_bytes)
        throw Error(ErrorCode::invalid_argument, "simulate: rank " + std::to_string(rank) + " was given buffers of " +
                                                     std::to_string(memory[rank].input.size()) + " and " +
                                                     std::to_string(memory[rank].output.size()) +
                                                     " bytes, its plan expects " + std::to_string(plan.input_bytes) +
                                                     " and " + std::to_string(plan.output_bytes));
      Rank& state = ranks_[rank];
      state.scratch.assign(plan.scratch_bytes, kGarbage);
      state.shared.assign(plan.shared_bytes, kGarbage);
      state.speed = runs_ahead ? random_() : 0;
      state.waits.resize(plan.steps.size());
      state.successors.resize(plan.steps.size());
      steps_left_ += plan.steps.size();
      for (StepId step = 0; step < plan.steps.size(); ++step) {
        state.waits[step] = plan.steps[step].dependency_count;
        for (const StepId earlier : dependencies(plan, step)) state.successors[earlier].push_back(step);
        if (state.waits[step] == 0) ready_.push_back({rank, step, Action::start});
      }
    }
  }

  void run() {
    while (!ready_.empty()) {
      const std::size_t chosen = choose();
      const Action action = ready_[chosen];
      ready_[chosen] = ready_.back();
      ready_.pop_back();
      switch (action.kind) {
        case Action::start: start({action.rank, action.step}); break;
        case Action::deliver: deliver({action.rank, action.step}); break;
        case Action::run: run_shared(action.rank, action.step); break;
      }
    }
    if (steps_left_ > 0) fail_deadlocked();
    for (const auto& [key, channel] : channels_)
      if (channel.producer || channel.consumer || channel.buffered) fail("a message or signal was never received");
  }

 private:
  struct Rank {
    std::vector<std::byte> scratch, shared;
    std::vector<std::uint32_t> waits;  // by step: dependencies that have not ended
    std::vector<std::vector<StepId>> successors;
    std::uint64_t speed;
  };
  struct Action {
    enum Kind { start, deliver, run };
    std::size_t rank;
    StepId step;  // of `run` the task
    Kind kind;    // deliver: the message that the recv `step` has met
  };
  // A task of the node of `rank`, the lowest one that it touches.
  struct TaskState {
    std::size_t ranks_missing = 0;
    std::size_t tasks_missing = 0;
    std::vector<std::uint32_t> next;
  };

  [[noreturn]] static void fail(const std::string& why) { throw Error(ErrorCode::internal, "simulation: " + why); }

  [[noreturn]] void fail_deadlocked() {
    std::string waiting;
    for (const auto& [key, channel] : channels_)
      for (const auto& step : {channel.producer, channel.consumer})
        if (step)
          waiting += "; rank " + std::to_string(step->rank) + " in " + describe(plans_[step->rank], step_of(*step));
    fail("deadlock with " + std::to_string(steps_left_) + " steps left" + waiting);
  }

  // One of two random candidates: the first, or the one of the faster rank.
  std::size_t choose() {
    const std::size_t a = random_() % ready_.size();
    const std::size_t b = random_() % ready_.size();
    return ranks_[ready_[b].rank].speed > ranks_[ready_[a].rank].speed ? b : a;
  }

  const Step& step_of(StepRef ref) const { return plans_[ref.rank].steps[ref.step]; }

  Bytes bytes(std::size_t rank, Region region) {
    if (region.size_bytes == 0) return {};
    const std::array<Bytes, 4> buffers{memory_[rank].input, memory_[rank].output, ranks_[rank].scratch,
                                       ranks_[rank].shared};
    const Bytes buffer = buffers[static_cast<std::size_t>(region.buffer)];
    if (!is_inside(region, buffer.size()))
      fail(describe(region) + " of rank " + std::to_string(rank) + " is out of bounds");
    return buffer.subspan(region.offset_bytes, region.size_bytes);
  }

  Bytes target(StepRef ref) {
    const Region region = step_of(ref).to;
    if (region.buffer == Buffer::input && region.size_bytes > 0)
      fail("rank " + std::to_string(ref.rank) + " writes its input");
    return bytes(ref.rank, region);
  }

  void move(ConstBytes from, Bytes to) {
    if (from.size() != to.size())
      fail("a copy of " + std::to_string(from.size()) + " bytes has a target of " + std::to_string(to.size()));
    if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
  }

  /// Equal for both steps that match.
  Channel& channel(StepRef ref) {
    const LinkKey key = *link_key(step_of(ref), static_cast<std::int32_t>(ref.rank));
    return channels_[(static_cast<std::uint64_t>(key.from) << 23 | static_cast<std::uint64_t>(key.to)) << 18 |
                     key.tag << 1 | (key.is_signal ? 1u : 0u)];
  }

  void compute(StepRef ref, ConstBytes from) {
    const Step& step = step_of(ref);
    const Bytes to = target(ref);
    switch (step.computation) {
      case Computation::copy: return move(from, to);
      case Computation::reduce: return kernels::reduce(arithmetic_, from, to);
      case Computation::reduce_sorted:
        return kernels::reduce_sorted(arithmetic_, kernels::parts_of(from, to.size()), to);
      case Computation::transform:
        return kernels::transform(arithmetic_, element_types(arithmetic_, step), blocks(plans_[ref.rank], step),
                                  step.scaled, from, to);
    }
  }

  void consume(StepRef ref) {
    Channel& from = channel(ref);
    from.consumer = ref;
    if (from.producer || from.buffered) ready_.push_back({ref.rank, ref.step, Action::deliver});
  }

  void start(StepRef ref) {
    const Step& step = step_of(ref);
    const auto peer = static_cast<std::size_t>(step.peer);
    switch (step.kind) {
      case StepKind::send:
      case StepKind::signal: {
        Channel& to = channel(ref);
        if (step.kind == StepKind::signal || random_() % 2 == 0) {
          const Bytes from = bytes(ref.rank, step.from);
          to.buffered.emplace(from.begin(), from.end());
          complete(ref);
        } else {
          to.producer = ref;
        }
        if (to.consumer) ready_.push_back({to.consumer->rank, to.consumer->step, Action::deliver});
        return;
      }
      case StepKind::recv:
        for (std::byte& byte : target(ref)) byte = kGarbage;
        return consume(ref);
      case StepKind::wait: return consume(ref);
      case StepKind::compute:
        if (takes_message(step)) return consume(ref);
        compute(ref, bytes(step.source == StepSource::local ? ref.rank : peer, step.from));
        return complete(ref);
      case StepKind::publish_tasks: return publish_tasks(ref);
    }
  }

  static std::set<std::size_t> ranks_of(const Plan& plan, const SharedTask& task) {
    std::set<std::size_t> ranks;
    for (const RankRegion& each : regions(plan, task)) ranks.insert(static_cast<std::size_t>(each.rank));
    return ranks;
  }

  // All ranks of a task know it under the same number; the lowest one stands for it.
  TaskState& task_state(const Plan& plan, std::uint32_t id) {
    const std::set<std::size_t> ranks = ranks_of(plan, plan.tasks[id]);
    const auto [entry, is_new] = task_states_.try_emplace({*ranks.begin(), id});
    if (is_new) {
      entry->second.ranks_missing = ranks.size();
      for (const std::uint32_t earlier : plan.tasks[id].after)
        if (earlier != SharedTask::kNone && !done_.contains({*ranks_of(plan, plan.tasks[earlier]).begin(), earlier})) {
          ++entry->second.tasks_missing;
          task_state(plan, earlier).next.push_back(id);
        }
    }
    return entry->second;
  }

  void publish_tasks(StepRef ref) {
    const Plan& plan = plans_[ref.rank];
    const TaskGroup& group = plan.task_groups[step_of(ref).task_group];
    std::uint32_t touching = 0;
    for (std::uint32_t id = group.first_task; id < group.first_task + group.task_count; ++id) {
      if (!touches(plan, plan.tasks[id], plan.rank)) continue;
      ++touching;
      TaskState& state = task_state(plan, id);
      if (--state.ranks_missing == 0 && state.tasks_missing == 0) ready_.push_back({ref.rank, id, Action::run});
    }
    shares_left_[{ref.rank, ref.step}] = touching;
    if (touching == 0) complete(ref);
  }

  void run_shared(std::size_t by, std::uint32_t id) {
    const Plan& plan = plans_[by];
    const SharedTask& task = plan.tasks[id];
    std::vector<ConstBytes> from;
    std::vector<Bytes> to;
    const auto at = [&](const RankRegion& each) {
      const auto rank = static_cast<std::size_t>(each.rank);
      return bytes(rank, resolved(plans_[rank], each.region));
    };
    for (const RankRegion& each : sources(plan, task)) from.push_back(at(each));
    for (const RankRegion& each : targets(plan, task)) {
      to.push_back(at(each));
      if (to.back().size() != from[0].size()) fail("source and target of a task differ in size");
    }
    run_task(arithmetic_, from, to);
    const std::set<std::size_t> ranks = ranks_of(plan, task);
    done_.insert({*ranks.begin(), id});
    for (const std::uint32_t next : task_state(plan, id).next) {
      TaskState& state = task_state(plan, next);
      if (--state.tasks_missing == 0 && state.ranks_missing == 0) ready_.push_back({by, next, Action::run});
    }
    for (const std::size_t rank : ranks)
      for (StepId step = 0; step < plans_[rank].steps.size(); ++step)
        if (publishes(plans_[rank], plans_[rank].steps[step], id) && --shares_left_.at({rank, step}) == 0)
          complete({rank, step});
  }

  void deliver(StepRef recv) {
    const Step& step = step_of(recv);
    Channel& from = channel(recv);
    const ConstBytes message =
        from.buffered ? ConstBytes(*from.buffered) : bytes(from.producer->rank, step_of(*from.producer).from);
    if (message.size() != consumed_bytes(step))
      fail("a message of " + std::to_string(message.size()) + " bytes has a target of " +
           std::to_string(consumed_bytes(step)));
    if (step.kind == StepKind::compute)
      compute(recv, message);
    else
      move(message, target(recv));
    from.buffered.reset();
    if (from.producer) complete(*std::exchange(from.producer, std::nullopt));
    from.consumer.reset();
    complete(recv);
  }

  void complete(StepRef ref) {
    --steps_left_;
    Rank& rank = ranks_[ref.rank];
    for (const StepId next : rank.successors[ref.step])
      if (--rank.waits[next] == 0) ready_.push_back({ref.rank, next, Action::start});
  }

  std::span<const Plan> plans_;
  const Arithmetic& arithmetic_;
  std::span<RankMemory> memory_;
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  std::vector<Action> ready_;
  std::unordered_map<std::uint64_t, Channel> channels_;
  std::map<std::pair<std::size_t, std::uint32_t>, TaskState> task_states_;
  std::set<std::pair<std::size_t, std::uint32_t>> done_;
  std::map<std::pair<std::size_t, StepId>, std::uint32_t> shares_left_;
  std::size_t steps_left_ = 0;
};

}  // namespace

void simulate(std::span<const Plan> plans, const Arithmetic& arithmetic, std::span<RankMemory> memory,
              std::uint64_t seed) {
  Simulation(plans, arithmetic, memory, seed).run();
}

}  // namespace penstock::plan
