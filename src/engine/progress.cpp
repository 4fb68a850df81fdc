#include "engine/progress.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <chrono>

namespace penstock::engine {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr int kSpins = 60;   // polls in a row before the core is offered to others
constexpr int kYields = 40;  // polls with a yield between them before sleeping
constexpr milliseconds kLongestSleep{100};
constexpr milliseconds kPoke{2};  // how long a message of the application may stay with a thread that waits
constexpr microseconds kShortestNap{20};
constexpr microseconds kLongestNap{500};
constexpr milliseconds kPeerCheck{200};

std::atomic<bool> forked{false};

void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

// Leaked on purpose: engines and the thread may outlive static objects at exit.
Progress& Progress::of_process() {
  static auto* instance = new Progress;
  return *instance;
}

Progress::Progress() {
  // The lock is taken across fork() so that the child never finds it held by a thread that it does not have.
  ::pthread_atfork([] { of_process().mutex_.lock(); }, [] { of_process().mutex_.unlock(); },
                   [] {
                     forked.store(true, std::memory_order_relaxed);
                     of_process().mutex_.unlock();
                   });
}

bool Progress::in_forked_child() noexcept { return forked.load(std::memory_order_relaxed); }

void Progress::add(Served& served) {
  const std::lock_guard lock(mutex_);
  all_.push_back(&served);
  count_.store(all_.size(), std::memory_order_relaxed);
  if (served.wants_thread) ++wanting_thread_;
}

void Progress::remove(Served& served) {
  if (in_forked_child()) return;
  std::thread ended;
  {
    const std::lock_guard lock(mutex_);
    std::erase(all_, &served);
    count_.store(all_.size(), std::memory_order_relaxed);
    if (served.wants_thread && --wanting_thread_ == 0 && thread_.joinable()) {
      stop_ = true;
      thread_attention_.ring_always();
      ended = std::move(thread_);
    }
  }
  if (ended.joinable()) {
    ended.join();
    const std::lock_guard lock(mutex_);
    stop_ = false;
    thread_runs_.store(false);
    if (wanting_thread_ > 0) start_thread();
  }
  attention_.ring_always();  // sleepers hold what they listen to
  thread_attention_.ring_always();
  while (served.users.load(std::memory_order_acquire) > 0) ::sched_yield();
}

void Progress::start_thread() {
  if (thread_runs_.load() || stop_) return;
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // signals belong to the application's threads
  try {
    thread_ = std::thread([this] { thread_loop(); });
    ::pthread_setname_np(thread_.native_handle(), "penstock");
    thread_runs_.store(true);
  } catch (const std::exception&) {
    // No thread to be had: progress happens in test and wait, as without one.
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Progress::attention(Served& served) noexcept {
  if (served.wants_thread) {
    if (!thread_runs_.load(std::memory_order_relaxed)) {
      const std::lock_guard lock(mutex_);
      start_thread();
    }
    thread_attention_.ring();
  }
  attention_.ring();
}

void Progress::hold(std::vector<Served*>& held, Caller caller, const Served* home) {
  held.clear();
  const std::lock_guard lock(mutex_);
  for (Served* served : all_) {
    if (served == home || !served->active.load(std::memory_order_seq_cst)) continue;
    if (caller == Caller::progress_thread) {
      if (!served->wants_thread) continue;
    } else if (served->waiters.load(std::memory_order_seq_cst) > 0) {
      continue;
    }
    served->users.fetch_add(1, std::memory_order_relaxed);
    held.push_back(served);
  }
}

void Progress::release(std::vector<Served*>& held) {
  for (Served* served : held) served->users.fetch_sub(1, std::memory_order_release);
  held.clear();
}

void Progress::sleep(Served* home, const std::vector<Served*>& held, Caller caller, const std::atomic<bool>* finished,
                     int sleeps) {
  std::array<Listening, kMaxListening + 1> listening;
  std::size_t count = 0;
  bool polling = false;
  const auto listen = [&](Doorbell& bell) {
    if (count >= listening.size()) return;
    bell.sleepers.fetch_add(1, std::memory_order_seq_cst);
    listening[count++] = {&bell, bell.word.load(std::memory_order_seq_cst)};
  };
  if (home != nullptr) listen(home->bell());
  listen(caller == Caller::application ? attention_ : thread_attention_);
  for (Served* served : held)
    if (caller == Caller::application || served->waiters.load(std::memory_order_seq_cst) == 0) listen(served->bell());

  bool idle = finished == nullptr || !finished->load(std::memory_order_seq_cst);
  if (home != nullptr) {
    idle = idle && home->can_sleep(caller);
    polling = home->needs_polling(caller);
  }
  for (Served* served : held) {
    if (caller == Caller::progress_thread && served->waiters.load(std::memory_order_seq_cst) > 0) continue;
    idle = idle && served->can_sleep(caller);
    polling = polling || served->needs_polling(caller);
  }
  if (idle) {
    nanoseconds timeout = kLongestSleep;
    if (polling) timeout = std::min<nanoseconds>(kShortestNap * (1 << std::min(sleeps, 5)), kLongestNap);
    if (caller == Caller::application) timeout = std::min<nanoseconds>(timeout, kPoke);
    // With nothing in flight only attention() can end the sleep of the progress thread.
    if (caller == Caller::progress_thread && held.empty()) timeout = std::chrono::hours(24);
    sleep_on({listening.data(), count}, timeout);
  }
  for (std::size_t i = 0; i < count; ++i) listening[i].bell->sleepers.fetch_sub(1, std::memory_order_relaxed);
}

void Progress::drive(Served& home) noexcept {
  if (home.progress(Caller::application)) return;
  home.poke();
  if (count_.load(std::memory_order_relaxed) < 2) return;
  thread_local std::vector<Served*> held;
  hold(held, Caller::application, &home);
  for (Served* served : held) served->progress(Caller::application);
  release(held);
}

void Progress::wait_for(Served& home, const std::atomic<bool>& finished) noexcept {
  home.waiters.fetch_add(1, std::memory_order_seq_cst);
  thread_local std::vector<Served*> held;
  int idle = 0;
  int sleeps = 0;
  auto checked = std::chrono::steady_clock::time_point{};
  while (!finished.load(std::memory_order_acquire)) {
    bool moved = home.progress(Caller::application);
    if (moved) {
      idle = sleeps = 0;
      continue;
    }
    if (++idle < kSpins) {
      pause();
      continue;
    }
    if (count_.load(std::memory_order_relaxed) > 1) hold(held, Caller::application, &home);
    for (Served* served : held) moved |= served->progress(Caller::application);
    if (moved) {
      idle = sleeps = 0;
    } else if (idle < kSpins + kYields) {
      ::sched_yield();
    } else {
      home.poke();
      sleep(&home, held, Caller::application, &finished, sleeps++);
      const auto now = std::chrono::steady_clock::now();
      if (checked == std::chrono::steady_clock::time_point{}) checked = now;
      if (now - checked > kPeerCheck) {
        checked = now;
        home.check_peers();
      }
    }
    release(held);
  }
  home.waiters.fetch_sub(1, std::memory_order_seq_cst);
  if (home.active.load(std::memory_order_seq_cst)) attention(home);
}

void Progress::thread_loop() noexcept {
  std::vector<Served*> held;
  int idle = 0;
  int sleeps = 0;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return;
    }
    hold(held, Caller::progress_thread, nullptr);
    bool moved = false;
    bool all_waited_for = true;
    for (Served* served : held) {
      // A thread that waits drives its engine by itself, faster than two threads that contend for it.
      const bool waited_for = served->waiters.load(std::memory_order_seq_cst) > 0;
      moved |= waited_for ? served->help() : served->progress(Caller::progress_thread);
      all_waited_for &= waited_for;
    }
    if (moved) {
      idle = sleeps = 0;
    } else if (!all_waited_for && ++idle < kSpins) {
      pause();
    } else if (!all_waited_for && idle < kSpins + kYields) {
      ::sched_yield();
    } else {
      sleep(nullptr, held, Caller::progress_thread, nullptr, sleeps++);
      idle = kSpins;
    }
    release(held);
  }
}

}  // namespace penstock::engine
