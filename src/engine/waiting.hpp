// The waiting policy: what a thread does that has found nothing to do. Without a clock, so that it is tested alone.
#pragma once

#include <algorithm>
#include <chrono>

namespace penstock::engine {

enum class Pause {
  spin,   ///< poll again at once
  yield,  ///< let another thread have the core, unless the poll has done it, then poll again
  sleep,  ///< until a bell rings, for Waiting::nap() at most if something must be polled
};

/// What a thread waits for.
struct Awaited {
  bool polls_transport = false;            ///< polling is a system call, so it is not repeated in a tight loop
  std::chrono::nanoseconds unpolled{};     ///< how long what is in flight needs no poll, as measured; 0: not known
  bool is_in_background = false;           ///< no thread waits for it: the sleep may be as long as what needs no poll
  bool shares_core = false;                ///< a thread in the background has no core of its own
  bool is_transferring = false;            ///< long messages should be on their way, as measured
  bool polls_yield = false;                ///< polls of the transport let other threads have the core
  bool is_crowded = false;                 ///< ranks share cores: the one that is waited for may need this core
  bool yields_are_late = false;            ///< see host::Yields
  bool yields_are_futile = false;          ///< see host::Yields
  bool yields_are_needless = false;        ///< see host::Yields
  std::chrono::nanoseconds nap_overrun{};  ///< see host::Naps
  /// Since something moved last. Asked for polls of a transport only.
  std::chrono::nanoseconds waited = std::chrono::nanoseconds::max();
};

/// Counts the fruitless polls of a thread.
class Waiting {
 public:
  static constexpr std::chrono::microseconds kShortestNap{20};  ///< that a thread asks for

  /// How long the shortest sleep lasts.
  static constexpr std::chrono::nanoseconds shortest_sleep(const Awaited& awaited) {
    return kShortestNap + awaited.nap_overrun;
  }
  /// Whether sleeping costs nothing: what is in flight needs no poll for longer than a sleep.
  static constexpr bool is_slow(const Awaited& awaited) { return awaited.unpolled >= shortest_sleep(awaited); }

  /// After a poll that has moved something.
  constexpr void moved() { polls_ = sleeps_ = 0; }
  /// There is more to poll than before.
  constexpr void renewed() {
    polls_ = std::min(polls_, kSpins);
    sleeps_ = 0;
  }
  /// After a fruitless poll.
  constexpr Pause next(const Awaited& awaited) {
    // While nobody wants the core, only the time to be woken is lost by sleeping.
    const bool is_alone = awaited.yields_are_needless && !awaited.is_crowded && !awaited.yields_are_late;
    most_polls_ = kSpins + (awaited.polls_transport ? kTransportYields : is_alone ? kYieldsAlone : kYields);
    const bool in_crowd = awaited.is_crowded && !awaited.polls_transport;
    // The rank that is waited for may need this core, and only a sleep gives it away.
    if (in_crowd && awaited.yields_are_futile) most_polls_ = kPollsIfFutile;
    // A thread that nobody waits for takes little time of a core that others may need.
    const bool is_guest = awaited.is_in_background && awaited.shares_core && awaited.is_transferring;
    if (is_guest) most_polls_ = kSpinsIfSlow;
    polls_ = std::min(polls_ + 1, most_polls_);
    const bool slow = is_slow(awaited);
    // A late yield costs more than all these polls and a sleep.
    if (awaited.yields_are_late && !slow && !awaited.polls_transport && !awaited.is_transferring)
      return polls_ < (in_crowd ? kSpins : most_polls_) ? Pause::spin : Pause::sleep;
    const int spins = awaited.polls_transport ? kTransportSpins : awaited.is_crowded ? kFewSpins : kSpins;
    if (polls_ < (slow || is_guest ? kSpinsIfSlow : spins)) return Pause::spin;
    // What a sleep costs is worth waiting for, and yields let others have the core meanwhile.
    const bool stays_awake =
        (awaited.is_transferring && !is_guest) ||
        (awaited.polls_transport && !awaited.is_crowded && sleeps_ == 0 && awaited.waited < shortest_sleep(awaited));
    // Most transports move a long message only while they are polled, and none says how far it is. So a rank that
    // sleeps makes it late. A rank that yields gives its core to one that computes as well.
    if (!slow && (polls_ < most_polls_ || stays_awake)) return Pause::yield;
    return Pause::sleep;
  }
  constexpr bool is_spinning() const { return polls_ < kSpins; }
  /// The longest sleep if something must be polled. Each is longer than the one before. After it the thread polls twice
  /// and sleeps again: others may need the core. Twice, since some transports report a message in the poll after the
  /// one that has received it. Otherwise two ranks that answer each other would find each message one sleep late, and
  /// since they wait for longer, sleep ever longer.
  constexpr std::chrono::nanoseconds nap(const Awaited& awaited = {}) {
    const std::chrono::nanoseconds longest = kShortestNap * (1 << std::min(sleeps_, kDoublings));
    ++sleeps_;
    polls_ = std::min(polls_, most_polls_ - kPollsPerNap);
    if (awaited.is_in_background && is_slow(awaited)) return awaited.unpolled - awaited.nap_overrun;
    return std::min<std::chrono::nanoseconds>(longest, kLongestNap);
  }

 private:
  static constexpr int kSpins = 10;  // polls before the thread yields its core
  // Polls with yields before the thread sleeps: about as long as it takes to sleep and to be woken. A poll of a
  // transport takes several times as long as one of shared memory.
  static constexpr int kYields = 360;
  static constexpr int kTransportYields = 90;
  static constexpr int kYieldsAlone = 32 * kYields;  // then the sleep makes the wait a thirtieth longer
  static constexpr int kSpinsIfSlow = 4;
  static constexpr int kFewSpins = 2;
  static constexpr int kTransportSpins = 1;  // none: to yield a core that nobody wants takes less than a poll
  static constexpr int kPollsIfFutile = 40;  // before the thread sleeps
  static constexpr int kPollsPerNap = 2;
  static constexpr int kDoublings = 5;
  static constexpr std::chrono::microseconds kLongestNap{500};

  int polls_ = 0;
  int most_polls_ = kSpins + kYields;  ///< before a sleep
  int sleeps_ = 0;
};

}  // namespace penstock::engine
