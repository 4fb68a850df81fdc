// Drives the engines of this process: by threads that wait, and by its progress threads (workers).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/doorbell.hpp"
#include "engine/pollable.hpp"
#include "engine/progress_threads.hpp"
#include "host/naps.hpp"

namespace penstock::engine {

/// All pollables of this process. Thread-safe; lives as long as the process. A thread that waits for one also drives
/// the others, and sleeps on the bells of all that it drives. Every progress thread drives every pollable with
/// wants_thread; they start when something is in flight for the first time.
class Progress {
 public:
  static Progress& of_process();

  void add(Pollable& pollable);
  /// On return no other thread is inside `pollable`.
  void remove(Pollable& pollable);
  /// Claims progress threads. The process has as many as the largest claim; the n-th runs on the n-th CPU of that
  /// claim, or unpinned if that is negative. The claim ends with the last copy of the result, whose destructor joins
  /// threads that no other claim needs.
  [[nodiscard]] std::shared_ptr<const void> claim_threads(std::vector<std::int32_t> cpus) {
    return threads_.claim(std::move(cpus));
  }

  /// The CPUs of the claimed threads, some of which may not run yet; -1: not pinned.
  std::vector<std::int32_t> claimed_cpus() const { return threads_.claimed(); }

  /// `pollable` has become active, or a waiting thread leaves it active: wakes a thread that can drive it.
  void attention(Pollable& pollable) noexcept;

  /// Steps of the progress lane are ready while the caller is busy with another one.
  void help_wanted() noexcept {
    generation_.fetch_add(1, std::memory_order_seq_cst);
    threads_.start();
    thread_attention_.ring();
  }

  /// An operation completed within its start. A rank that starts only such operations never waits, so its peers are
  /// checked here. Called by the thread that starts operations.
  static void completed_in_start(Pollable& pollable) noexcept;

  /// Polls `home` once and, if it has nothing to do, all active pollables that no other thread drives.
  void drive(Pollable& home) noexcept;
  /// Drives `home`, and all active pollables that no other thread drives, until `finished`.
  void wait_for(Pollable& home, const std::atomic<bool>& finished) noexcept;

  /// From now on the calling thread sleeps in wait_for() as long as progress threads can do what is to be done: it runs
  /// beside a computation, which may have the same core.
  static void sleep_in_waits() noexcept;
  static bool sleeps_in_wait() noexcept;  ///< whether the calling thread has called it

  /// Whether something is in flight that no progress thread drives.
  bool has_unpolled();

  /// True in a child of fork(), which has no progress threads and is no rank.
  static bool in_forked_child() noexcept;
  /// Throws Error(unsupported) in such a child.
  static void require_own_process();

 private:
  Progress();
  void thread_loop(const ProgressThreads::Worker& self) noexcept;
  /// Fills `acquired` with the active pollables that the caller drives besides `home`, and counts it in their `users`
  /// until release().
  void acquire(std::vector<Pollable*>& acquired, Caller caller, const Pollable* home);
  static void release(std::vector<Pollable*>& acquired);
  static void check_peers_if_due(Pollable& pollable, Caller caller) noexcept;
  static bool progress_and_check(Pollable& pollable, Caller caller) noexcept;
  void ring_all() noexcept;

  std::mutex mutex_;
  std::vector<Pollable*> all_;
  std::atomic<std::size_t> count_{0};         ///< of all_
  std::atomic<std::uint64_t> generation_{0};  ///< counts changes that a thread must see before it sleeps
  Doorbell attention_;                        ///< for waiting threads: what they must drive has changed
  Doorbell thread_attention_;                 ///< the same for progress threads
  ProgressThreads threads_;                   ///< the last member, since the threads use the others
};

}  // namespace penstock::engine
