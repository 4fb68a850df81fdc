#include "engine/progress.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <new>

#include "engine/sleeper.hpp"
#include "engine/waiting.hpp"
#include "host/pause.hpp"
#include "host/yielding.hpp"
#include "penstock/error.hpp"

namespace penstock::engine {
namespace {

using std::chrono::nanoseconds;

constexpr nanoseconds kPeerCheck = std::chrono::milliseconds(200);
constexpr std::uint32_t kBusyRounds = 256;  // rounds of progress between two reads of the clock

std::atomic<bool> forked{false};

thread_local bool sleeps_in_waits = false;

}  // namespace

// Leaked on purpose: engines and threads may outlive static objects at exit.
Progress& Progress::of_process() {
  static auto* instance = new Progress;
  return *instance;
}

Progress::Progress()
    : threads_(
          mutex_, [this](const ProgressThreads::Worker& self) { thread_loop(self); }, [this] { ring_all(); }) {
  // fork() takes the lock, so that the child does not inherit it locked by a thread that it does not have.
  ::pthread_atfork([] { of_process().mutex_.lock(); }, [] { of_process().mutex_.unlock(); },
                   [] {
                     forked.store(true, std::memory_order_relaxed);
                     of_process().mutex_.unlock();
                   });
}

bool Progress::in_forked_child() noexcept { return forked.load(std::memory_order_relaxed); }

void Progress::require_own_process() {
  if (in_forked_child())
    throw Error(ErrorCode::unsupported,
                "this communicator belongs to the parent process; a child of fork() cannot use it: start the child's "
                "own program (spawn), or fork before MPI_Init");
}

void Progress::add(Pollable& pollable) {
  const std::lock_guard lock(mutex_);
  all_.push_back(&pollable);
  count_.store(all_.size(), std::memory_order_relaxed);
}

void Progress::remove(Pollable& pollable) {
  if (in_forked_child()) return;
  {
    const std::lock_guard lock(mutex_);
    std::erase(all_, &pollable);
    count_.store(all_.size(), std::memory_order_relaxed);
  }
  ring_all();  // sleepers count as users of what they listen to
  while (pollable.users.load(std::memory_order_acquire) > 0) ::sched_yield();
}

void Progress::ring_all() noexcept {
  generation_.fetch_add(1, std::memory_order_seq_cst);
  attention_.ring_always();
  thread_attention_.ring_always();
}

void Progress::attention(Pollable& pollable) noexcept {
  generation_.fetch_add(1, std::memory_order_seq_cst);
  if (pollable.wants_thread) {
    threads_.start();
    thread_attention_.ring();
  }
  attention_.ring();
}

void Progress::acquire(std::vector<Pollable*>& acquired, Caller caller, const Pollable* home) {
  acquired.clear();
  const std::lock_guard lock(mutex_);
  try {
    acquired.reserve(all_.size());
  } catch (const std::bad_alloc&) {
    // Drives fewer.
  }
  for (Pollable* pollable : all_) {
    if (acquired.size() == acquired.capacity()) return;
    if (pollable == home || !pollable->active.load(std::memory_order_seq_cst)) continue;
    if (caller == Caller::progress_thread) {
      if (!pollable->wants_thread) continue;
    } else if (pollable->waiters.load(std::memory_order_seq_cst) > 0) {
      continue;
    }
    pollable->users.fetch_add(1, std::memory_order_relaxed);
    acquired.push_back(pollable);
  }
}

void Progress::release(std::vector<Pollable*>& acquired) {
  for (Pollable* pollable : acquired) pollable->users.fetch_sub(1, std::memory_order_release);
  acquired.clear();
}

bool Progress::has_unpolled() {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(all_, [](const Pollable* pollable) {
    return pollable->active.load(std::memory_order_seq_cst) && !pollable->wants_thread;
  });
}

// Called by all threads that find nothing to do: waiting threads, test() and progress threads.
void Progress::check_peers_if_due(Pollable& pollable, Caller caller) noexcept {
  const std::int64_t now = steady_ns();
  std::int64_t last = pollable.checked_ns.load(std::memory_order_relaxed);
  if (last != 0 && now - last < kPeerCheck.count()) return;
  // Only one of several threads does it.
  if (!pollable.checked_ns.compare_exchange_strong(last, now, std::memory_order_relaxed) || last == 0) return;
  pollable.check_peers(caller);
  // A check that takes longer than the interval must leave time for what it checks.
  pollable.checked_ns.store(steady_ns(), std::memory_order_relaxed);
}

// Messages of ranks that run ahead can keep a thread busy for ever, so peers are checked in busy rounds too.
bool Progress::progress_and_check(Pollable& pollable, Caller caller) noexcept {
  if (!pollable.progress(caller)) return false;
  const std::uint32_t rounds = pollable.busy_rounds.load(std::memory_order_relaxed) + 1;
  pollable.busy_rounds.store(rounds, std::memory_order_relaxed);
  if (rounds % kBusyRounds == 0) check_peers_if_due(pollable, caller);
  return true;
}

void Progress::completed_in_start(Pollable& pollable) noexcept {
  const std::int64_t now_ns = host::coarse_ns();  // ten times faster than the precise clock
  if (now_ns - pollable.checked_at_start_ns < kPeerCheck.count()) return;
  pollable.checked_at_start_ns = now_ns;
  pollable.check_peers(Caller::application);
}

void Progress::drive(Pollable& home) noexcept {
  if (progress_and_check(home, Caller::application)) return;
  home.poke();
  check_peers_if_due(home, Caller::application);
  if (count_.load(std::memory_order_relaxed) < 2) return;
  thread_local std::vector<Pollable*> acquired;
  acquire(acquired, Caller::application, &home);
  for (Pollable* pollable : acquired)
    if (!progress_and_check(*pollable, Caller::application)) check_peers_if_due(*pollable, Caller::application);
  release(acquired);
}

void Progress::sleep_in_waits() noexcept { sleeps_in_waits = true; }

bool Progress::sleeps_in_wait() noexcept { return sleeps_in_waits; }

void Progress::wait_for(Pollable& home, const std::atomic<bool>& finished) noexcept {
  if (sleeps_in_waits) leave_to_progress_threads(home, finished);
  if (finished.load(std::memory_order_acquire)) return;
  home.waiters.fetch_add(1, std::memory_order_seq_cst);
  thread_local std::vector<Pollable*> acquired;
  host::Yields& yields = host::yields_of_this_thread();
  thread_local host::Naps naps(host::timer_slack());
  Waiting waiting;
  std::int64_t moved_ns = 0;
  const bool yields_are_late = yields.are_late();
  while (!finished.load(std::memory_order_acquire)) {
    const std::uint64_t generation = generation_.load(std::memory_order_seq_cst);
    bool moved = progress_and_check(home, Caller::application);
    if (moved) {
      waiting.moved();
      moved_ns = 0;
      continue;
    }
    Awaited awaited = awaited_of(home, naps, Caller::application);
    if (awaited.polls_transport) {
      const std::int64_t now_ns = steady_ns();
      if (moved_ns == 0) moved_ns = now_ns;
      awaited.waited = nanoseconds(now_ns - moved_ns);
    }
    awaited.yields_are_late = yields_are_late;
    awaited.yields_are_futile = yields.are_futile();
    awaited.yields_are_needless = yields.are_needless();
    const Pause next = waiting.next(awaited);
    if (next == Pause::spin) {
      host::pause();
      continue;
    }
    if (count_.load(std::memory_order_relaxed) > 1) acquire(acquired, Caller::application, &home);
    for (Pollable* pollable : acquired) moved |= progress_and_check(*pollable, Caller::application);
    const auto transfers = [](const Pollable* pollable) {
      return awaited_of(*pollable, naps, Caller::application).is_transferring;
    };
    if (moved) {
      waiting.moved();
      moved_ns = 0;
    } else if (next == Pause::yield || std::ranges::any_of(acquired, transfers)) {
      if (!awaited.polls_yield) host::yield(yields);
    } else {
      home.poke();
      Sleeper{Caller::application, &home, acquired, attention_, generation_, generation, finished, naps}.sleep(
          waiting.nap(awaited));
      check_peers_if_due(home, Caller::application);
      for (Pollable* pollable : acquired) check_peers_if_due(*pollable, Caller::application);
    }
    release(acquired);
  }
  home.waiters.fetch_sub(1, std::memory_order_seq_cst);
  if (home.active.load(std::memory_order_seq_cst)) attention(home);
}

void Progress::thread_loop(const ProgressThreads::Worker& self) noexcept {
  std::vector<Pollable*> acquired;
  std::uint64_t generation = 0;
  host::Naps naps(host::timer_slack());
  Waiting waiting;
  while (!self.stop.load(std::memory_order_acquire)) {
    // Keeps its pollables while it spins, so that several threads do not contend for the lock.
    const std::uint64_t now = generation_.load(std::memory_order_seq_cst);
    if (now != generation) waiting.renewed();
    if (now != generation || !waiting.is_spinning()) {
      generation = now;
      release(acquired);
      acquire(acquired, Caller::progress_thread, nullptr);
    }
    bool moved = false;
    Awaited awaited{.unpolled = kLongestSleep,
                    .is_in_background = true,
                    .shares_core = self.cpu.load(std::memory_order_relaxed) < 0,
                    .nap_overrun = naps.overrun()};
    for (Pollable* pollable : acquired) {
      // A waiting thread drives its own engine; two threads would contend for its lock.
      if (pollable->waiters.load(std::memory_order_seq_cst) > 0) {
        moved |= pollable->help();
        continue;
      }
      moved |= progress_and_check(*pollable, Caller::progress_thread);
      const Awaited its = awaited_of(*pollable, naps, Caller::progress_thread);
      awaited.unpolled = std::min(awaited.unpolled, its.unpolled);
      awaited.is_transferring |= its.is_transferring;
      awaited.polls_yield |= its.polls_yield;
    }
    if (moved) {
      waiting.moved();
      continue;
    }
    switch (waiting.next(awaited)) {
      case Pause::spin: host::pause(); break;
      case Pause::yield:
        if (!awaited.polls_yield) ::sched_yield();
        break;
      case Pause::sleep:
        Sleeper{Caller::progress_thread, nullptr, acquired, thread_attention_, generation_, generation, self.stop, naps}
            .sleep(waiting.nap(awaited));
        for (Pollable* pollable : acquired) check_peers_if_due(*pollable, Caller::progress_thread);
    }
  }
  release(acquired);
}

}  // namespace penstock::engine
