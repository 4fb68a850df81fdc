// What a thread has found out about its sleeps. Without a clock, so that it is tested alone.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace penstock::host {

/// How much longer than asked the sleeps of one thread last: by the kernel's slack for timers, and by the time to be
/// woken. The median of late. Not of sleeps during which a turn of another thread may have ended: a rank that stayed
/// awake for as long as others have its core would make them wait for longer, and they would make it sleep for longer.
class Naps {
 public:
  /// `slack`: of this thread's timers, until a sleep has been timed.
  explicit constexpr Naps(std::chrono::nanoseconds slack) : overrun_(slack) {}

  constexpr std::chrono::nanoseconds overrun() const { return overrun_; }
  /// After a sleep that nobody has ended before its time. The ticks before and after it: of a clock that changes
  /// whenever the scheduler may end a turn.
  constexpr void ended(std::chrono::nanoseconds asked, std::chrono::nanoseconds took, std::int64_t tick_before,
                       std::int64_t tick_after) {
    if (tick_after != tick_before) return;
    const std::chrono::nanoseconds by = std::max(took - asked, kLeast);
    overrun_ = overrun_ < kLeast ? by : overrun_ + (by > overrun_ ? overrun_ : -overrun_) / kSteps;
  }

 private:
  static constexpr std::chrono::nanoseconds kLeast{100};  // so that a step is never nothing
  static constexpr int kSteps = 8;

  std::chrono::nanoseconds overrun_;
};

}  // namespace penstock::host
