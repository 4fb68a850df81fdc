// What a thread has found out about its sleeps. Without a clock, so that it is tested alone.
#pragma once

#include <algorithm>
#include <chrono>

namespace penstock::engine {

/// How much longer than asked the sleeps of one thread last: by the kernel's slack for timers, and by the time to be
/// woken. The median of late, since other threads may have the core.
class Naps {
 public:
  /// `slack`: of this thread's timers, until a sleep has been timed.
  explicit constexpr Naps(std::chrono::nanoseconds slack) : overrun_(slack) {}

  constexpr std::chrono::nanoseconds overrun() const { return overrun_; }
  /// After a sleep that nobody has ended before its time.
  constexpr void ended(std::chrono::nanoseconds asked, std::chrono::nanoseconds took) {
    const std::chrono::nanoseconds by = std::max(took - asked, kLeast);
    overrun_ = overrun_ < kLeast ? by : overrun_ + (by > overrun_ ? overrun_ : -overrun_) / kSteps;
  }

 private:
  static constexpr std::chrono::nanoseconds kLeast{100};  // so that a step is never nothing
  static constexpr int kSteps = 8;

  std::chrono::nanoseconds overrun_;
};

}  // namespace penstock::engine
