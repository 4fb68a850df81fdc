// What a thread has found out about its yields. Without a clock, so that it is tested alone.
#pragma once

#include <algorithm>

namespace penstock::engine {

/// The yields of one thread, over all its waits.
class Yields {
 public:
  /// Yields come back late: a thread that waits for nothing has the core meanwhile, for a whole turn. Asked once in
  /// each wait; after some waits the answer is false once, so that a yield is tried again.
  constexpr bool are_late() { return skips_ > 0 && skips_-- > 0; }
  /// Yields give the core to nobody. Where the scheduler knows groups of threads (sessions, control groups), a yield
  /// is for threads of the same group only; all ranks may be in groups of their own.
  constexpr bool are_futile() const { return futile_; }
  /// After a yield. `count_switches` returns how often another thread has had this thread's core; it is called seldom.
  template <typename CountSwitches>
  constexpr void returned(bool late, CountSwitches count_switches) {
    streak_ = late ? std::min(2 * streak_ + 1, kLongestStreak) : 0;
    skips_ = streak_;
    if (++yields_ < kYieldsPerCount) return;
    yields_ = 0;
    const long switches = count_switches();
    futile_ = (switches - switches_) * kFewestPerSwitch < kYieldsPerCount;
    switches_ = switches;
  }

 private:
  static constexpr int kLongestStreak = 255;
  static constexpr int kYieldsPerCount = 64;
  static constexpr int kFewestPerSwitch = 16;  // of futile yields. Ranks that take turns switch in one of two to four

  int streak_ = 0;  ///< grows with each late yield
  int skips_ = 0;   ///< waits before the next yield is tried
  int yields_ = 0;  ///< since the switches were counted
  long switches_ = 0;
  bool futile_ = false;
};

}  // namespace penstock::engine
