// The progress threads (workers) of this process: their number and their CPUs.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace penstock::engine {

/// Runs as many threads as the largest claim asks for. They start when they are first needed.
class ProgressThreads {
 public:
  struct Worker {
    std::thread thread;
    std::atomic<std::int32_t> cpu{-1};  ///< that it is pinned to
    std::atomic<bool> stop{false};
  };
  /// The body of a thread; returns when `stop` is set. Must not throw.
  using Loop = std::function<void(const Worker& self)>;

  /// The owner's `mutex` protects this object; it is locked during a fork(). `wake` makes all threads check `stop`; it
  /// is called without the mutex.
  ProgressThreads(std::mutex& mutex, Loop loop, std::function<void()> wake)
      : mutex_(mutex), loop_(std::move(loop)), wake_(std::move(wake)) {}

  /// See Progress::claim_threads.
  [[nodiscard]] std::shared_ptr<const void> claim(std::vector<std::int32_t> cpus);

  /// Starts the claimed threads that do not run yet; fewer if the system refuses.
  void start() {
    if (!lacks_some_.load(std::memory_order_relaxed)) return;
    const std::lock_guard lock(mutex_);
    start_locked();
  }

  /// The CPUs of the largest claim; -1: not pinned.
  std::vector<std::int32_t> claimed() const {
    const std::lock_guard lock(mutex_);
    return cpus_;
  }

 private:
  using Claim = std::vector<std::int32_t>;
  void end(const Claim* claim);
  /// Adapts the threads to changed claims: pins those that stay, stops the others and returns them. Join them without
  /// the lock.
  std::vector<std::unique_ptr<Worker>> fit();
  void start_locked();
  static void place(Worker& worker, std::int32_t cpu);

  std::mutex& mutex_;
  const Loop loop_;
  const std::function<void()> wake_;
  std::vector<std::unique_ptr<const Claim>> claims_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::int32_t> cpus_;       ///< the largest claim
  std::atomic<bool> lacks_some_{false};  ///< fewer threads run than cpus_ asks for
};

}  // namespace penstock::engine
