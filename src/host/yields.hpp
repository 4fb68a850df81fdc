// What a thread has found out about its yields. Without a clock, so that it is tested alone.
#pragma once

#include <algorithm>
#include <cstdint>

namespace penstock::host {

/// What others had of a thread's core since the thread began.
struct Turns {
  long switches = 0;        ///< how often another thread took the core
  std::int64_t waited = 0;  ///< for how long the thread waited to have it, in the unit of ticks
};

/// The yields of one thread, over all its waits.
class Yields {
 public:
  /// Yields come back late: a thread that waits for nothing has the core meanwhile, for a whole turn. Asked once in
  /// each wait; after some waits the answer is false once, so that a yield is tried again.
  constexpr bool are_late() { return skips_ > 0 && skips_-- > 0; }
  /// Others have this core in turns, but not by yields. Where the scheduler knows groups of threads (sessions, control
  /// groups), a yield is for threads of the same group only; all ranks may be in groups of their own.
  constexpr bool are_futile() const { return futile_; }
  /// Neither late, as far as is known, nor futile. Asking counts for no wait.
  constexpr bool are_useful() const { return skips_ == 0 && !futile_; }
  /// Others had much of this core lately.
  constexpr bool is_core_shared() const { return shared_; }
  /// Others had next to nothing of this core lately.
  constexpr bool are_needless() const { return needless_; }
  /// After a yield. The ticks before and after it: of a clock that changes whenever the scheduler may end a turn.
  /// `count_turns` returns Turns; it is called seldom.
  template <typename CountTurns>
  constexpr void returned(std::int64_t tick_before, std::int64_t tick_after, CountTurns count_turns) {
    const bool is_late = tick_after != tick_before;
    streak_ = is_late ? std::min(2 * streak_ + 1, kLongestStreak) : 0;
    skips_ = streak_;
    ticks_ += (tick_before != tick_ ? 1 : 0) + (is_late ? 1 : 0);
    tick_ = tick_after;
    if (++yields_ < kYieldsPerCount || ticks_ < kTicksPerCount) return;
    const Turns turns = count_turns();
    judge(turns.switches - turns_.switches);
    const std::int64_t waited = turns.waited - turns_.waited;
    needless_ = judged_tick_ != 0 && kLeastShare * waited < tick_ - judged_tick_;
    shared_ = judged_tick_ != 0 && kMuchShare * waited >= tick_ - judged_tick_;
    turns_ = turns;
    judged_tick_ = tick_;
    yields_ = 0;
    ticks_ = 0;
  }

 private:
  static constexpr int kLongestStreak = 255;
  static constexpr long kYieldsPerCount = 64;
  static constexpr int kTicksPerCount = 4;      // so that a thread that shares its core has lost it at least once
  static constexpr long kFewestPerSwitch = 16;  // of futile yields. Ranks that take turns switch in one of two to four
  static constexpr int kMuchShare = 8;          // an eighth: of two ranks that share a core each waits half of the time
  static constexpr int kMostCalm = 16;
  static constexpr int kLeastShare = 32;  // of the core, a thirtieth; system threads have less

  constexpr void judge(long switches) {
    const bool is_alone = switches == 0;
    calm_ = is_alone ? calm_ + 1 : 0;
    if (!is_alone)
      futile_ = switches * kFewestPerSwitch < yields_;
    else if (calm_ >= kMostCalm)  // a thread that sleeps soon is seldom interrupted, whether it is alone or not
      futile_ = false;
  }

  int streak_ = 0;  ///< grows with each late yield
  int skips_ = 0;   ///< waits before the next yield is tried
  std::int64_t tick_ = 0;
  int ticks_ = 0;    ///< since the switches were counted
  long yields_ = 0;  ///< since then
  Turns turns_{};
  std::int64_t judged_tick_ = 0;
  int calm_ = 0;  ///< counts in a row without a switch
  bool futile_ = false;
  bool needless_ = false;
  bool shared_ = false;
};

}  // namespace penstock::host
