#include "engine/polled_engine.hpp"

#include <exception>
#include <mutex>
#include <utility>

namespace penstock::engine {

PolledEngine::PolledEngine(std::shared_ptr<Transport> by, const EngineOptions& given, Node on)
    : ShortCalls(std::move(by), given, std::move(on)) {
  wants_thread = options.progress_threads > 0;
  is_crowded = shares_cores;
}

void PolledEngine::fail_all_by_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    transport_broken = true;
    fail_all(error);
  } catch (const std::exception& error) {
    fail_all(Error(ErrorCode::internal, "an exception ended all operations of the communicator", rank, error.what()));
  } catch (...) {
    fail_all(Error(ErrorCode::internal, "an exception ended all operations of the communicator", rank,
                   "what was thrown is no std::exception"));
  }
}

void PolledEngine::close_epochs() noexcept {
  guarded([&] {
    the<RemoteMessages>().close_epochs();
    return true;
  });
}

bool PolledEngine::progress(Caller by) noexcept {
  if (Progress::in_forked_child()) return false;
  Locked lock(lock_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  caller = by;
  return guarded([&] {
    bool any_moved = poll();
    if (by == Caller::progress_thread && has_work(Lane::application)) ring_waiting();
    any_moved |= run_work(lock, Lane::progress);
    if (by == Caller::application) any_moved |= run_work(lock, Lane::application);
    if (has<SharedTasks>()) any_moved |= the<SharedTasks>().run(lock);
    if (has_remote) the<RemoteMessages>().close_epochs();
    return any_moved;
  });
}

bool PolledEngine::help() noexcept {
  Locked lock(lock_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  caller = Caller::progress_thread;
  return guarded(
      [&] { return run_work(lock, Lane::progress) || (has<SharedTasks>() && the<SharedTasks>().run(lock)); });
}

bool PolledEngine::can_sleep(Caller by) noexcept {
  const std::lock_guard lock(lock_);
  return !has_work(Lane::progress) && (by == Caller::progress_thread || !has_work(Lane::application)) &&
         !any([&](const auto& mechanism) { return mechanism.has_work(by); });
}

bool PolledEngine::needs_polling(Caller by) noexcept {
  const std::lock_guard lock(lock_);
  return any([&](const auto& mechanism) { return mechanism.needs_polling(by); });
}

bool PolledEngine::threads_suffice() noexcept {
  if (!wants_thread || (has_remote && !transport->any_thread())) return false;
  const std::lock_guard lock(lock_);
  if (has_work(Lane::application)) return false;
  bool has_tasks_of_application = false;
  operations.for_each_unfinished([&](const Operation& each) {
    has_tasks_of_application |= each.call.plan && each.call.plan->application_levels > 0;
  });
  return !has_tasks_of_application;
}

void PolledEngine::poke() noexcept {
  if (Progress::in_forked_child() || has_remote) return;  // between nodes, progress() calls the transport all the time
  const Locked lock(lock_, std::try_to_lock);
  if (lock.owns_lock()) transport->poke();
}

void PolledEngine::update_active() {
  const bool now = operations.has_unfinished() || any([](const auto& mechanism) { return !mechanism.is_idle(); });
  if (active.load(std::memory_order_relaxed) != now) active.store(now, std::memory_order_seq_cst);
  if (!has_remote) return;
  const RemoteMessages& remote = the<RemoteMessages>();
  nap_ns.store(remote.long_messages().nap_ns(), std::memory_order_relaxed);
  background_nap_ns.store(remote.long_messages().background_nap_ns(), std::memory_order_relaxed);
  transfer_until_ns.store(remote.long_messages().transfer_until_ns(), std::memory_order_relaxed);
  const bool expects_messages = remote.expects_messages();
  polls_transport.store(expects_messages, std::memory_order_relaxed);
  polls_yield.store(expects_messages && transport->yielded(), std::memory_order_relaxed);
}

// Progress calls it. It relies on this: everything that an operation waits for is named by waits_for() of a mechanism,
// or is released by live ranks.
void PolledEngine::check_peers(Caller by) noexcept {
  const std::lock_guard lock(lock_);
  caller = by;
  try {
    receive_from_gone_ranks();
    fail_what_peers_have_failed();
    operations.for_each_unfinished([&](Operation& each) {
      if (each.call.plan && !each.has_failed()) check(each);
    });
    if (has<SharedTasks>()) the<SharedTasks>().poll();  // operations that ran tasks for dead ranks can end
  } catch (const std::exception&) {
    // The next check tries again.
  }
  update_active();
}

}  // namespace penstock::engine
