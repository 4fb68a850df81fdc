// How the threads that drive engines sleep: on the bells of all that they drive.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "engine/pollable.hpp"
#include "engine/waiting.hpp"
#include "host/naps.hpp"

namespace penstock::engine {

inline constexpr std::chrono::milliseconds kLongestSleep{100};

std::int64_t steady_ns();

/// What a thread waits for that drives `pollable`.
Awaited awaited_of(const Pollable& pollable, const host::Naps& naps, Caller caller);

/// A thread that has found nothing to do.
struct Sleeper {
  Caller caller;
  Pollable* home;                                ///< what a waiting thread waits for, or nullptr
  const std::vector<Pollable*>& acquired;        ///< what else it drives
  Doorbell& attention;                           ///< rings when what it must drive has changed
  const std::atomic<std::uint64_t>& generation;  ///< counts these changes
  std::uint64_t seen_generation;                 ///< before `acquired` was filled
  const std::atomic<bool>& ended;                ///< the wait is over, or the thread must stop
  host::Naps& naps;                              ///< of the calling thread

  /// At most `nap` long if something must be polled.
  void sleep(std::chrono::nanoseconds nap) const noexcept;

 private:
  /// A waiting thread drives what it waits for by itself.
  bool leaves_alone(const Pollable& pollable) const {
    return caller == Caller::progress_thread && pollable.waiters.load(std::memory_order_seq_cst) > 0;
  }
  std::chrono::nanoseconds longest_sleep(bool polls, std::chrono::nanoseconds nap) const;
};

/// Sleeps until `finished`, or until progress threads need the calling thread.
void leave_to_progress_threads(Pollable& home, const std::atomic<bool>& finished) noexcept;

}  // namespace penstock::engine
