// The progress threads (workers) of this process: how many there are, and where they run.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace penstock::engine {

/// As many threads as the largest claim that is held, from the moment at which they are first needed.
class ProgressThreads {
 public:
  /// What a thread does until it is told to stop. noexcept in all but its type.
  using Loop = std::function<void(const std::atomic<bool>& stop)>;

  /// The mutex protects what is here, too: a fork() takes it. `wake` lets all threads look at `stop`; without the
  /// mutex.
  ProgressThreads(std::mutex& mutex, Loop loop, std::function<void()> wake)
      : mutex_(mutex), loop_(std::move(loop)), wake_(std::move(wake)) {}

  /// See Progress::claim_threads.
  [[nodiscard]] std::shared_ptr<const void> claim(std::vector<std::int32_t> cpus);

  /// Starts those that are claimed and do not run yet. Where the system refuses, there are fewer.
  void start() {
    if (!lacks_some_.load(std::memory_order_relaxed)) return;
    const std::lock_guard lock(mutex_);
    start_locked();
  }

 private:
  using Claim = std::vector<std::int32_t>;
  struct Worker {
    std::thread thread;
    std::int32_t cpu = -1;
    std::atomic<bool> stop{false};
  };

  void end(const Claim* claim);
  /// After a change of the claims: pins the threads that stay; the others are told to stop and returned, to be joined
  /// without the lock.
  std::vector<std::unique_ptr<Worker>> fit();
  void start_locked();
  static void place(Worker& worker, std::int32_t cpu);

  std::mutex& mutex_;
  const Loop loop_;
  const std::function<void()> wake_;
  std::vector<std::unique_ptr<const Claim>> claims_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::int32_t> cpus_;       ///< the largest claim: what workers_ becomes when they are needed
  std::atomic<bool> lacks_some_{false};  ///< workers_ has fewer
};

}  // namespace penstock::engine
