#include "engine/executor.hpp"

#include <sched.h>

#include <array>
#include <new>
#include <span>
#include <utility>

#include "engine/operation_run.hpp"
#include "engine/waiting.hpp"
#include "host/huge_pages.hpp"
#include "penstock/trace.hpp"

namespace penstock::engine {
namespace {

constexpr int kPollsAtOnce = 32;
constexpr std::uint32_t kRunsPerLook = 64;  // runs that complete at once, between looks for ranks that have died

/// Leaks the transport. MPI would reuse its context for a later communicator, which could receive messages still in
/// flight.
void keep_for_ever(std::shared_ptr<Transport> transport) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::shared_ptr<Transport>>;
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(transport));
}

}  // namespace

std::shared_ptr<Engine> Engine::create(std::shared_ptr<Transport> transport, const EngineOptions& options, Node node) {
  return std::make_shared<Executor>(std::move(transport), options, std::move(node));
}

Executor::Executor(std::shared_ptr<Transport> by, const EngineOptions& given, Node on)
    : PolledEngine(std::move(by), given, std::move(on)) {
  Progress::of_process().add(*this);
}

Executor::~Executor() {
  Progress::of_process().remove(*this);
  if (Progress::in_forked_child()) {
    new (std::nothrow)
        std::shared_ptr<Transport>(std::move(transport));  // a forked child must not call the parent's MPI
    return;
  }
  if (!has_entered_) return;
  try {
    if (has<CellMessages>()) {
      the<CellMessages>().send_waiting();
      // Publishes the completed operations, so that no peer finds this rank missing in them after it has left.
      if (!operations.has_unfinished()) own_slot().completed_before.store(operations.next(), std::memory_order_release);
    }
    const bool quiet = !has_remote || the<RemoteMessages>().close();
    if (!quiet) keep_for_ever(std::move(transport));
  } catch (...) {
    // No caller is left to report it to.
  }
}

void Executor::run(const std::shared_ptr<const Plan>& plan, const Bindings& bindings, const Arithmetic& arithmetic,
                   std::uint64_t signature) {
  // A user operation must not run under the lock.
  if (plan->by_flags && has<FlagExchange>() && !arithmetic.user && !trace::enabled() && !Progress::in_forked_child()) {
    const std::lock_guard lock(lock_);
    const auto compute = [&](const Operation& operation, StepId step) {
      the<Computations>().compute(operation, step, source_of(operation, operation.step(step)));
    };
    if (the<FlagExchange>().run_fast_path(plan, bindings, arithmetic, signature, plans_, compute)) return;
  }
  Progress::require_own_process();
  use_huge_pages(bindings);
  Locked lock(lock_);
  const bool may_be_short = can_run_short(*plan, bindings, arithmetic) && !Progress::sleeps_in_wait();
  const CompiledPlan* const short_plan = may_be_short ? find_short_plan(plans_, plan_tags_, plan) : nullptr;
  Operation& started = next_operation();
  int polls = kPollsAtOnce;
  if (short_plan != nullptr && run_short(started, *short_plan, plan, bindings, arithmetic, signature, polls)) {
    if (the<RemoteMessages>().has_epochs_to_close()) close_epochs();
    return after_run(lock);
  }
  OperationRun run(*this, started, nullptr);
  if (short_plan == nullptr) {
    start_next(started, std::shared_ptr(plan), bindings, arithmetic, signature);
  } else {
    checked_ns.store(0, std::memory_order_relaxed);
    start_rest(started, plan);
    guarded([&] { return the<RemoteMessages>().go_on(), true; });
    finish_if_over(started);
  }
  if (polls_at_once(started) && poll_at_once(started, polls)) {
    run.drop_locked();
    return after_run(lock);
  }
  after_start(lock, started, Then::wait);
  run.wait();
}

void Executor::after_run(Locked& lock) {
  const bool looks = ++polled_at_once_ % kRunsPerLook == 0;
  lock.unlock();
  if (looks) Progress::completed_in_start(*this);
}

std::shared_ptr<Run> Executor::start(std::shared_ptr<const Plan> plan, const Bindings& bindings,
                                     const Arithmetic& arithmetic, std::uint64_t signature) {
  Progress::require_own_process();
  use_huge_pages(bindings);
  Locked lock(lock_);
  Operation& started = next_operation();
  auto run = std::make_shared<OperationRun>(*this, started, shared_from_this());
  leaves_to_threads = wants_thread && transport->any_thread();
  start_next(started, std::move(plan), bindings, arithmetic, signature);
  leaves_to_threads = false;
  after_start(lock, started, Then::go_on);
  return run;
}

void Executor::use_huge_pages(const Bindings& bindings) const {
  if (!options.huge_pages || node.segment == nullptr) return;
  const std::array<ConstBytes, 2> all{bindings.input, bindings.output};
  for (const ConstBytes part : bindings.parts.empty() ? std::span<const ConstBytes>(all) : bindings.parts)
    host::use_huge_pages(part);
}

Operation& Executor::next_operation() {
  caller = Caller::application;
  return operations.at(operations.next());
}

void Executor::start_next(Operation& started, std::shared_ptr<const Plan>&& plan, const Bindings& bindings,
                          const Arithmetic& arithmetic, std::uint64_t signature) {
  if (!operations.has_unfinished()) checked_ns.store(0, std::memory_order_relaxed);
  operations.start(started);
  started.call.bindings = bindings;
  started.call.bindings.parts = {};  // the caller's
  started.call.arithmetic = arithmetic;
  started.call.signature = signature;
  if (trace::enabled()) started.call.begin_ns = trace::detail::now_ns();
  try {
    prepare(started, std::move(plan));
  } catch (...) {
    fail(started, std::current_exception(), "could not start the operation");
  }
  finish_if_over(started);
}

// A message that comes soon is found sooner than by wait(), which takes the lock for each poll, and asks what else is
// to be driven. That can wait for so few polls.
bool Executor::poll_at_once(Operation& started, int polls) {
  Waiting waiting;
  guarded([&] {
    for (; polls > 0 && !started.is_finished(); --polls) {
      if (has_work(Lane::application) || has_work(Lane::progress)) break;
      if (poll()) {
        waiting.moved();
        continue;
      }
      const Pause next = waiting.next({.polls_transport = true, .is_crowded = is_crowded});
      if (next == Pause::sleep) break;
      if (next == Pause::yield && !transport->yielded()) ::sched_yield();
    }
    if (started.is_finished()) the<RemoteMessages>().close_epochs();
    return true;
  });
  return started.is_finished() && !started.has_failed();
}

void Executor::after_start(Locked& lock, Operation& started, Then then) {
  const bool has_tasks = started.is_running() && started.call.compiled->tasks().count() > 0;
  const bool has_workers = node.team.progress_cores > 0;
  // Only with workers: they run the rest of the tree meanwhile.
  while (has_tasks && has_workers && the<SharedTasks>().run_front(started, lock)) {
  }
  if (has_remote && started.is_finished())
    close_epochs();
  else
    update_active();
  // An operation that completed at once still processes notices of failures.
  const bool has_news = started.is_finished() && has<CellMessages>() && !the<CellMessages>().is_empty();
  lock.unlock();
  // If workers can make progress, the caller's time is not used for it.
  if (has_news || (!started.is_finished() && !wants_thread && !(has_tasks && has_workers)))
    progress(Caller::application);
  if (started.is_finished()) Progress::completed_in_start(*this);
  // A thread that waits drives its engine itself, and asks for help with long steps. Tasks are for all threads at once.
  const bool is_driven = then == Then::wait && !has_tasks && !started.is_finished();
  if (active.load(std::memory_order_relaxed) && !is_driven) Progress::of_process().attention(*this);
}

void Executor::prepare(Operation& operation, std::shared_ptr<const Plan>&& plan) {
  Call& call = operation.call;
  const CompiledPlan* const compiled = plans_.get(plan, node.team, node.shared_limit_bytes, plan_tags_);
  const auto need = [&](std::uint64_t bytes, const char* what, ConstBytes given) {
    if (given.size() < bytes)
      throw Error(ErrorCode::invalid_argument,
                  "the plan '" + plan->algorithm + "' needs " + std::to_string(bytes) + " bytes of " + what +
                      ", given " + std::to_string(given.size()),
                  rank);
  };
  need(plan->input_bytes, "input", call.bindings.input);
  need(plan->output_bytes, "output", call.bindings.output);
  if (!call.bindings.scratch.empty()) need(plan->scratch_bytes, "scratch memory", call.bindings.scratch);
  call.plan = std::move(plan);
  call.compiled = compiled;
  if (operation.has_failed()) return;
  if (const int gone = detector.find_gone_in(operation); gone >= 0)
    throw FailureDetector::gone_error(gone, describe(operation));
  if (admit(operation)) launch(operation);
}

void Executor::fail_next(const std::string& message) noexcept try {
  if (Progress::in_forked_child()) return;
  {
    const std::lock_guard lock(lock_);
    caller = Caller::application;
    Operation& failing = operations.at(operations.next());
    operations.start(failing);
    fail(failing, Error(ErrorCode::invalid_argument, message, rank));
    finish_if_over(failing);  // also if a peer's failure has come before
    update_active();
  }
  progress(Caller::application);
  if (active.load()) Progress::of_process().attention(*this);
} catch (const std::exception&) {
  // Out of memory while failing: the peers' check finds that this rank has died or has called something else.
}

void Executor::set_timeout(std::chrono::milliseconds timeout) noexcept {
  const std::lock_guard lock(lock_);
  detector.set_timeout(timeout);
}

std::uint64_t Executor::short_calls() {
  const std::lock_guard lock(lock_);
  return has_remote ? the<RemoteMessages>().short_exchange().runs() : 0;
}

std::string Executor::report() const {
  std::string text = "transport: " + transport->description() + "\n";
  for (const std::string& fact : node.facts) text += fact + "\n";
  {
    const std::lock_guard lock(lock_);
    text += detector.report();
  }
  if (!wants_thread)
    text += "progress: in start, test and wait only\n";
  else if (has_remote && !transport->any_thread())
    text +=
        "progress: by threads, for shared memory only: the transport may not be used by other threads; "
        "between nodes progress happens in start, test and wait\n";
  else
    text += "progress: by threads, asleep while nothing is in flight\n";
  return text;
}

}  // namespace penstock::engine
