#include "simgrid/executor.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "cost_model/prices.hpp"
#include "penstock/error.hpp"
#include "plan/order.hpp"
#include "plan/step_graph.hpp"
#include "plan/tasks.hpp"

namespace penstock::simulated {
namespace {

namespace s4u = simgrid::s4u;

constexpr std::size_t kNamedInADeadlock = 8;

struct Loopback {
  double latency_seconds = 0;
  double seconds_per_byte = 0;
};
Loopback loopback_of(const s4u::Host& host) {
  std::vector<s4u::Link*> links;
  Loopback loopback;
  host.route_to(&host, links, &loopback.latency_seconds);
  for (const s4u::Link* link : links)
    loopback.seconds_per_byte = std::max(loopback.seconds_per_byte, 1 / link->get_bandwidth());
  return loopback;
}

class Run {
 public:
  Run(const s4u::Engine& engine, const std::vector<s4u::Host*>& hosts, std::span<const Plan> plans, const Team& team,
      const Machine& machine, Charges charges, const std::function<void(std::int32_t, StepId)>& on_end)
      : engine_(engine),
        hosts_(hosts),
        team_(team),
        machine_(machine),
        prices_{machine},
        as_peers_(charges == Charges::as_peers),
        on_end_(on_end),
        graph_(plans, team.node_of_rank),
        steps_(graph_.size()),
        processes_(plans.size()) {
    if (!graph_.unmatched().empty())
      throw Error(ErrorCode::internal, "simulation: " + graph_.words(graph_.unmatched()[0]) + " has no partner");
    for (StepIndex index = 0; index < steps_.size(); ++index)
      steps_[index] = {.waits = step_of(index).dependency_count, .tasks_left = graph_.tasks_of(index).size()};
    for (const plan::StepGraph::Task& task : graph_.tasks()) task_waits_.push_back(task.waits);
  }

  double run() {
    begin_ = last_ = s4u::Engine::get_clock();
    make_actors();
    engine_.run();
    if (completed_ < steps_.size()) fail_deadlocked();
    return last_ - begin_;
  }

 private:
  using StepIndex = plan::StepGraph::Index;

  struct State {
    std::uint32_t waits = 0;
    std::size_t tasks_left = 0;
    bool started = false;
    bool ready = false;  // a message or signal: for its receiver
    bool ended = false;
    double started_at = 0;
    double ready_at = 0;
  };

  enum class Then : std::uint8_t {
    end,         // the step is complete
    end_both,    // so is its partner's
    hand_over,   // the message goes to the network
    offer,       // the message inside the node can be taken; the step is complete
    end_a_part,  // the step is complete; the message was offered when the work began
    end_task
  };
  struct Work {
    double seconds;
    std::size_t index;
    Then then;
  };

  /// An actor that sleeps while it has nothing to do.
  template <class Item>
  struct Worker {
    std::deque<Item> queue{};
    s4u::SemaphorePtr wake = s4u::Semaphore::create(0);
    bool is_idle = false;

    void push(Item item) {
      queue.push_back(std::move(item));
      if (!std::exchange(is_idle, false)) return;
      wake->release();
    }
    Item pop() {
      if (queue.empty()) {
        is_idle = true;
        wake->acquire();
      }
      Item item = std::move(queue.front());
      queue.pop_front();
      return item;
    }
  };
  struct Core : Worker<Work> {
    double busy_until = 0;
  };
  /// What a process hands to the network.
  struct Process : Worker<StepIndex> {
    std::vector<std::size_t> busy_nodes{};  // to which a message is leaving
    s4u::SemaphorePtr one_has_left = s4u::Semaphore::create(0);
    bool waits = false;
  };
  /// A message on its way, or the handshake before it.
  struct Errand {
    StepIndex send;
    double handshake;
    bool leaves;
  };

  const Step& step_of(StepIndex index) const { return graph_.step(index); }
  State& partner_of(StepIndex index) { return steps_[graph_.partner(index)]; }
  std::size_t node_of(std::int32_t rank) const {
    return static_cast<std::size_t>(team_.node_of_rank[static_cast<std::size_t>(rank)]);
  }

  // Ranks beyond the cores of their node share cores, in turn.
  void make_actors() {
    cores_of_node_.resize(hosts_.size());
    std::vector<std::size_t> ranks_on_node(hosts_.size());
    for (std::int32_t rank = 0; rank < team_.size(); ++rank) {
      const std::size_t node = node_of(rank);
      const auto most = static_cast<std::size_t>(std::max(1, machine_.node.cores));
      const std::size_t local = ranks_on_node[node]++;
      if (local < most) {
        cores_of_node_[node].push_back(cores_.size());
        cores_.push_back(std::make_unique<Core>());
        Core* core = cores_.back().get();
        s4u::Actor::create("rank-" + std::to_string(rank), hosts_[node], [this, core] { work_on(*core); })->daemonize();
      }
      core_of_rank_.push_back(cores_of_node_[node][local % most]);
    }
    s4u::Actor::create("start", hosts_[0], [this] {
      s4u::SemaphorePtr ended = s4u::Semaphore::create(0);
      ended_ = ended;
      ++pending_;
      for (StepIndex index = 0; index < steps_.size(); ++index)
        if (steps_[index].waits == 0) to_start_.push_back(index);
      settle();
      completed_one();
      ended->acquire();
    });
  }

  // Nothing is under way when it reaches 0: all has ended, or what is left never will.
  void completed_one() {
    if (--pending_ == 0) ended_->release();
  }

  void work_on(Core& core) {
    while (true) {
      const Work work = core.pop();
      if (work.then == Then::end_a_part) {
        offer(work.index);
        settle();
      }
      if (work.seconds > 0) s4u::this_actor::sleep_for(work.seconds);
      done(work);
      settle();
      completed_one();
    }
  }

  void give(std::size_t core, Work work) {
    ++pending_;
    Core& worker = *cores_[core];
    worker.busy_until = std::max(worker.busy_until, s4u::Engine::get_clock()) + work.seconds;
    worker.push(work);
  }
  void give_rank(StepIndex index, double seconds, Then then) {
    give(core_of_rank_[static_cast<std::size_t>(graph_.rank(index))], {seconds, index, then});
  }

  void done(const Work& work) {
    switch (work.then) {
      case Then::end:
      case Then::end_a_part: return end(work.index);
      case Then::end_both: end(work.index); return end(graph_.partner(work.index));
      case Then::offer: end(work.index); return offer(work.index);
      case Then::hand_over: return handed_over(work.index);
      case Then::end_task:
        for (const std::size_t next : graph_.tasks()[work.index].next) release_task(next);
        for (const StepIndex publisher : graph_.tasks()[work.index].publishers)
          if (--steps_[publisher].tasks_left == 0) end(publisher);
        return;
    }
  }

  // Steps that have become ready start here and not where the one before them ends: chains of steps that take no time
  // would go deeper than the stack of an actor.
  void settle() {
    while (!to_start_.empty()) {
      const StepIndex index = to_start_.front();
      to_start_.pop_front();
      start(index);
    }
  }

  void end(StepIndex index) {
    steps_[index].ended = true;
    ++completed_;
    last_ = s4u::Engine::get_clock();
    if (on_end_) on_end_(graph_.rank(index), graph_.id(index));
    for (const StepIndex next : graph_.next(index))
      if (--steps_[next].waits == 0) to_start_.push_back(next);
  }

  void start(StepIndex index) {
    State& state = steps_[index];
    const Step& step = step_of(index);
    state.started = true;
    state.started_at = s4u::Engine::get_clock();
    switch (step.kind) {
      case StepKind::send:
        if (!as_peers_ && is_inside(index)) return send_inside(index);
        return give_rank(index, overhead(index), Then::hand_over);
      case StepKind::recv: return receive(index);
      case StepKind::compute:
        if (plan::takes_message(step)) return receive(index);
        return give_rank(index, as_peers_ && !is_sum(step) ? 0 : prices_.compute(step), Then::end);
      case StepKind::signal:
        state.ready = true;
        if (partner_of(index).started) see(graph_.partner(index));
        return end(index);
      case StepKind::wait:
        if (partner_of(index).ready) see(index);
        return;
      case StepKind::publish_tasks:
        if (state.tasks_left == 0) return end(index);
        for (const std::size_t task : graph_.tasks_of(index)) release_task(task);
        return;
    }
  }

  void see(StepIndex wait) { give_rank(wait, prices_.flag(), Then::end); }

  void send_inside(StepIndex index) {
    const std::uint64_t bytes = step_of(index).from.size_bytes;
    if (prices_.is_read(bytes, team_.single_copy)) return offer(index);
    // The receiver copies the first part of a long message out while the sender copies the next one in.
    give_rank(index, prices_.copy(bytes), bytes > machine_.node.message_bytes ? Then::end_a_part : Then::offer);
  }

  void offer(StepIndex send) {
    steps_[send].ready = true;
    if (partner_of(send).started) receive_inside(graph_.partner(send));
  }

  void receive_inside(StepIndex index) {
    const std::uint64_t bytes = plan::consumed_bytes(step_of(index));
    if (prices_.is_read(bytes, team_.single_copy))
      return give_rank(index, prices_.flag() + prices_.remote_read(bytes), Then::end_both);
    give_rank(index, prices_.flag() + prices_.copy(bytes), Then::end);
  }

  void receive(StepIndex index) {
    const State& state = steps_[index];
    const State& sender = partner_of(index);
    if (!as_peers_ && is_inside(index)) {
      if (sender.ready) receive_inside(index);
    } else if (state.ready) {
      give_rank(index, overhead(graph_.partner(index)), Then::end);
    } else if (sender.ready) {
      shake_hands(graph_.partner(index));  // the sender of a long message has asked
    }
  }

  void release_task(std::size_t index) {
    if (--task_waits_[index] > 0) return;
    const plan::StepGraph::Task& which = graph_.tasks()[index];
    const Plan& plan = graph_.plan_of(which);
    const SharedTask& task = plan.tasks[which.number];
    // Of idle cores the one that has been idle for longest: not always that of the leader.
    const std::size_t core = *std::ranges::min_element(cores_of_node_[which.node], {},
                                                       [&](std::size_t each) { return cores_[each]->busy_until; });
    const std::uint64_t bytes = plan::sources(plan, task)[0].region.size_bytes;
    double seconds = prices_.task(bytes, task.source_count, task.target_count);
    if (as_peers_)
      seconds = machine_.node.task_seconds +
                static_cast<double>(task.source_count + task.target_count - 1) * on_loopback(which.node, bytes) +
                static_cast<double>(task.source_count - 1) * prices_.combine(bytes);
    give(core, {seconds, index, Then::end_task});
  }

  // --- Charges of peers: also of messages inside nodes ----------------------------------------------------------

  bool is_inside(StepIndex message) const { return team_.same_node(graph_.rank(message), step_of(message).peer); }
  static bool is_sum(const Step& step) {
    return step.computation == Computation::reduce || step.computation == Computation::reduce_sorted;
  }
  double overhead(StepIndex send) const {
    return as_peers_ && !prices_.is_eager(step_of(send).from.size_bytes) ? 0 : prices_.overhead();
  }
  double on_loopback(std::size_t node, std::uint64_t bytes) const {
    const Loopback loopback = loopback_of(*hosts_[node]);
    return loopback.latency_seconds + static_cast<double>(bytes) * loopback.seconds_per_byte;
  }
  double gap() const { return as_peers_ ? 0 : machine_.network.gap_seconds; }
  double on_process(StepIndex send) const {
    const double bytes = static_cast<double>(step_of(send).from.size_bytes);
    return gap() + (as_peers_ && is_inside(send) ? 0 : bytes * machine_.network.process_seconds_per_byte);
  }

  // --- Between nodes -------------------------------------------------------------------------------------------

  double latency(StepIndex send) {
    const std::size_t from = node_of(graph_.rank(send));
    const std::size_t to = node_of(step_of(send).peer);
    const auto [known, is_new] = latencies_.try_emplace(from * hosts_.size() + to);
    if (is_new) {
      std::vector<s4u::Link*> links;
      hosts_[from]->route_to(hosts_[to], links, &known->second);
    }
    return known->second;
  }

  void handed_over(StepIndex send) {
    if (prices_.is_eager(step_of(send).from.size_bytes)) {
      end(send);
      return inject(send);
    }
    steps_[send].ready = true;
    steps_[send].ready_at = s4u::Engine::get_clock() + (as_peers_ ? 0 : latency(send));
    if (partner_of(send).started) shake_hands(send);
  }

  // The receiver answers once it has been asked and has a buffer.
  void shake_hands(StepIndex send) {
    const double now = s4u::Engine::get_clock();
    run_errand({send, as_peers_ ? 0 : std::max(steps_[send].ready_at - now, 0.0) + latency(send), false});
  }

  void inject(StepIndex send) {
    if (as_peers_ && is_inside(send)) return run_errand({send, 0, true});
    ++pending_;
    const auto rank = static_cast<std::size_t>(graph_.rank(send));
    if (!processes_[rank]) {
      processes_[rank] = std::make_unique<Process>();
      s4u::Actor::create("process-" + std::to_string(rank), hosts_[node_of(graph_.rank(send))], [this, rank] {
        inject_all(*processes_[rank]);
      })->daemonize();
    }
    processes_[rank]->push(send);
  }

  // A process hands its messages over at its rate: if all that are ready shared the links at the same time, all would
  // arrive last. For the same reason the next message to a node waits for the one before it, if others use its links.
  void inject_all(Process& process) {
    while (true) {
      const StepIndex send = process.pop();
      const std::size_t node = node_of(step_of(send).peer);
      while (std::ranges::find(process.busy_nodes, node) != process.busy_nodes.end()) {
        process.waits = true;
        process.one_has_left->acquire();
      }
      process.busy_nodes.push_back(node);
      run_errand({send, 0, true});
      s4u::this_actor::sleep_for(on_process(send));
      completed_one();
    }
  }

  // An actor is busy for a time, and a message under way is no work of a rank. So it has an actor of its own.
  void run_errand(const Errand& errand) {
    ++pending_;
    if (idle_messengers_.empty()) {
      messengers_.push_back(std::make_unique<Worker<Errand>>());
      Worker<Errand>* added = messengers_.back().get();
      s4u::Actor::create("messenger-" + std::to_string(messengers_.size()), hosts_[0], [this, added] {
        while (true) {
          const Errand next = added->pop();
          if (next.leaves) {
            transfer(next.send);
          } else {
            s4u::this_actor::sleep_for(next.handshake);
            inject(next.send);
          }
          idle_messengers_.push_back(added);
          completed_one();
        }
      })->daemonize();
      idle_messengers_.push_back(added);
    }
    Worker<Errand>* messenger = idle_messengers_.back();
    idle_messengers_.pop_back();
    messenger->push(errand);
  }

  void transfer(StepIndex send) {
    const Step& step = step_of(send);
    const std::size_t node = node_of(step.peer);
    const double gap_bytes = gap() / machine_.network.seconds_per_byte;
    const double begin = s4u::Engine::get_clock();
    s4u::Comm::sendto(hosts_[node_of(graph_.rank(send))], hosts_[node],
                      static_cast<std::uint64_t>(static_cast<double>(step.from.size_bytes) + gap_bytes + 0.5));
    // A process may be slower than its link.
    const double left = begin + on_process(send) - s4u::Engine::get_clock();
    if (left > kTolerance) s4u::this_actor::sleep_for(left);
    if (!as_peers_ || !is_inside(send)) {
      Process& process = *processes_[static_cast<std::size_t>(graph_.rank(send))];
      std::erase(process.busy_nodes, node);
      if (std::exchange(process.waits, false)) process.one_has_left->release();
    }
    const bool is_long = !prices_.is_eager(step.from.size_bytes);
    if (is_long && !as_peers_) end(send);
    settle();
    if (const double seconds = latency(send); seconds > 0) s4u::this_actor::sleep_for(seconds);
    if (is_long && as_peers_) end(send);
    arrive(graph_.partner(send));
    settle();
  }

  void arrive(StepIndex receiver) {
    steps_[receiver].ready = true;
    if (steps_[receiver].started) give_rank(receiver, overhead(graph_.partner(receiver)), Then::end);
  }

  [[noreturn]] void fail_deadlocked() const {
    std::string text = "simulation: deadlock with " + std::to_string(steps_.size() - completed_) + " steps left";
    std::size_t named = 0;
    for (StepIndex index = 0; index < steps_.size() && named < kNamedInADeadlock; ++index) {
      const State& state = steps_[index];
      if (!state.started || state.ended) continue;
      ++named;
      text += "; " + graph_.words(index) + " waits";
      const StepIndex partner = graph_.partner(index);
      if (partner != plan::StepGraph::kNone && !steps_[partner].started)
        text += " for " + graph_.words(partner) + ", which has not started";
    }
    throw Error(ErrorCode::internal, text);
  }

  static constexpr double kTolerance = 1e-10;  // of sums of times

  const s4u::Engine& engine_;
  const std::vector<s4u::Host*>& hosts_;
  const Team& team_;
  const Machine& machine_;
  cost_model::Prices<double> prices_;
  const bool as_peers_;
  const std::function<void(std::int32_t, StepId)>& on_end_;
  const plan::StepGraph graph_;
  std::vector<State> steps_;
  std::vector<std::size_t> task_waits_;
  std::vector<std::unique_ptr<Core>> cores_;
  std::vector<std::vector<std::size_t>> cores_of_node_;
  std::vector<std::size_t> core_of_rank_;
  std::vector<std::unique_ptr<Process>> processes_;  // by rank; of those that send to other nodes
  std::vector<std::unique_ptr<Worker<Errand>>> messengers_;
  std::vector<Worker<Errand>*> idle_messengers_;
  std::unordered_map<std::size_t, double> latencies_;
  std::deque<StepIndex> to_start_;
  s4u::SemaphorePtr ended_;
  std::size_t pending_ = 0;
  std::size_t completed_ = 0;
  double begin_ = 0;
  double last_ = 0;
};

}  // namespace

void set_network_model() {
  // Latencies are the executor's: they follow the bytes, so that a process knows when a message has left it.
  for (const char* setting :
       {"network/model:CM02", "network/crosstraffic:0", "network/TCP-gamma:0", "network/latency-factor:0",
        "network/bandwidth-factor:1", "contexts/stack-size:128", "contexts/guard-size:0", "surf/precision:1e-12"})
    s4u::Engine::set_config(setting);
}

Machine as_charged(Machine machine, const s4u::Host& host, Charges charges) {
  if (charges == Charges::machine) return machine;
  const Loopback loopback = loopback_of(host);
  machine.network.gap_seconds = 0;
  machine.node.message_bytes = machine.network.eager_bytes;
  machine.network.eager_bytes = std::numeric_limits<std::uint64_t>::max();
  machine.node.flag_seconds = loopback.latency_seconds + 2 * machine.network.overhead_seconds;
  machine.node.copy_seconds_per_byte = loopback.seconds_per_byte / 2;  // in and out
  machine.node.remote_read_seconds = 0;
  machine.node.remote_read_seconds_per_byte = loopback.seconds_per_byte;
  return machine;
}

double run(const s4u::Engine& engine, const std::vector<s4u::Host*>& hosts, std::span<const Plan> plans,
           const Team& team, const Machine& machine, const std::function<void(std::int32_t, StepId)>& on_end,
           Charges charges) {
  return Run(engine, hosts, plans, team, machine, charges, on_end).run();
}

}  // namespace penstock::simulated
