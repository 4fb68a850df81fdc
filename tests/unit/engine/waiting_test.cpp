// The waiting policy, with a simulated clock: a rank that waits for a transfer stays awake, and sleeps otherwise.
#include "engine/waiting.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "engine/remote/transfer_time.hpp"
#include "host/naps.hpp"

namespace penstock::engine {
namespace {

using host::Naps;

constexpr Awaited kTransport{.polls_transport = true};

int polls_until(Waiting& waiting, const Awaited& awaited, Pause what) {
  for (int polls = 1; polls < 100'000; ++polls)
    if (waiting.next(awaited) == what) return polls;
  return 0;
}

TEST(WaitingPolicy, SpinsThenYieldsThenSleeps) {
  for (const Awaited& awaited : {Awaited{}, kTransport}) {
    Waiting waiting;
    const int first_yield = polls_until(waiting, awaited, Pause::yield);
    EXPECT_EQ(first_yield > 1, !awaited.polls_transport) << "polls of a transport are system calls";
    EXPECT_GT(polls_until(waiting, awaited, Pause::sleep), 10);
    for (int i = 0; i < 5; ++i) {
      waiting.nap();
      EXPECT_EQ(polls_until(waiting, awaited, Pause::sleep), 2) << "it polls twice between two sleeps";
    }
    waiting.moved();
    EXPECT_EQ(polls_until(waiting, awaited, Pause::yield), first_yield);
  }
}

// A sleep and its wake-up take tens of microseconds. A poll of shared memory takes a fraction of one, that of a
// transport more than one.
TEST(WaitingPolicy, PollsSharedMemoryMoreOftenThanATransport) {
  Waiting node;
  Waiting between_nodes;
  EXPECT_GT(polls_until(node, {}, Pause::sleep), 3 * polls_until(between_nodes, kTransport, Pause::sleep));
}

TEST(WaitingPolicy, YieldsSoonerAndSleepsAsLateIfRanksShareCores) {
  constexpr Awaited kCrowd{.is_crowded = true};
  Waiting alone;
  Waiting crowded;
  EXPECT_LT(2 * polls_until(crowded, kCrowd, Pause::yield), polls_until(alone, {}, Pause::yield));
  EXPECT_EQ(Waiting().next(kCrowd), Pause::spin);
  Waiting asleep_alone;
  Waiting asleep_crowded;
  EXPECT_EQ(polls_until(asleep_crowded, kCrowd, Pause::sleep), polls_until(asleep_alone, {}, Pause::sleep));
}

TEST(WaitingPolicy, NapsGrowUntilSomethingMoves) {
  Waiting waiting;
  const auto first = waiting.nap();
  auto last = first;
  for (int i = 0; i < 100; ++i) {
    const auto next = waiting.nap();
    EXPECT_GE(next, last);
    last = next;
  }
  EXPECT_GT(last, 10 * first);
  EXPECT_LE(last, std::chrono::milliseconds(1));
  waiting.moved();
  EXPECT_EQ(waiting.nap(), first);
}

/// How long a rank waits for a message that comes at `arrives_ns` after the begin of its wait, if the transport reports
/// it in the poll after the one that has received it.
std::uint64_t wait_of(std::uint64_t arrives_ns) {
  constexpr std::uint64_t kPollAndYieldNs = 1'500;
  Waiting waiting;
  std::uint64_t now = 0;
  for (bool is_received = false;;) {
    if (is_received) return now;
    is_received = now >= arrives_ns;
    now += kPollAndYieldNs;
    if (waiting.next(kTransport) == Pause::sleep) now += static_cast<std::uint64_t>(waiting.nap().count());
  }
}

// Two ranks answer each other. One was late once, so both sleep; they must wake up again.
TEST(WaitingPolicy, RanksThatAnswerEachOtherDoNotKeepEachOtherAsleep) {
  for (const std::uint64_t late_ns : {200'000, 500'000, 1'000'000, 5'000'000, 100'000'000}) {
    constexpr std::uint64_t kLatencyNs = 10'000;
    std::uint64_t answered_ns = late_ns;  // when the message has been sent, after the other rank's last one
    for (int i = 0; i < 40; ++i) {
      const std::uint64_t waited_ns = wait_of(answered_ns + kLatencyNs);
      answered_ns = waited_ns - std::min(waited_ns, answered_ns + kLatencyNs) + kLatencyNs;
    }
    EXPECT_LT(answered_ns, 50'000u) << late_ns;
  }
}

TEST(WaitingPolicy, YieldsAsLongAsATransferGoesOn) {
  const Awaited transfer{.polls_transport = true, .is_transferring = true};
  Waiting waiting;
  EXPECT_EQ(polls_until(waiting, transfer, Pause::sleep), 0);
  EXPECT_EQ(polls_until(waiting, kTransport, Pause::sleep), 1) << "it has polled often enough";
  EXPECT_EQ(waiting.next(transfer), Pause::yield);
}

TEST(WaitingPolicy, SleepsAtOnceIfSleepingCostsNothing) {
  using std::chrono::microseconds;
  for (const bool is_transferring : {false, true}) {
    Waiting waiting;
    EXPECT_LE(polls_until(waiting, {true, microseconds(100), is_transferring}, Pause::sleep), 4);
    EXPECT_EQ(waiting.next({true, microseconds(1), true}), Pause::yield) << "less than a nap";
  }
}

// The kernel lets timers be late, by 50 microseconds if nobody has asked for less.
TEST(WaitingPolicy, ASleepThatLastsLongerThanAskedCosts) {
  using std::chrono::microseconds;
  Awaited awaited{.polls_transport = true, .unpolled = microseconds(60), .nap_overrun = microseconds(55)};
  EXPECT_FALSE(Waiting::is_slow(awaited));
  awaited.unpolled = microseconds(100);
  EXPECT_TRUE(Waiting::is_slow(awaited));
}

TEST(WaitingPolicy, AThreadInTheBackgroundSleepsForAsLongAsNothingNeedsAPoll) {
  using std::chrono::microseconds;
  Awaited awaited{.polls_transport = true, .unpolled = microseconds(1000), .nap_overrun = microseconds(55)};
  EXPECT_LT(Waiting().nap(awaited), microseconds(100)) << "a thread that waits asks often";
  awaited.is_in_background = true;
  EXPECT_EQ(Waiting().nap(awaited), microseconds(945));
  awaited.unpolled = microseconds(60);
  EXPECT_EQ(Waiting().nap(awaited), Waiting().nap()) << "no sleep is that short";
}

TEST(WaitingPolicy, AThreadInTheBackgroundStaysAwakeForATransferOnACoreOfItsOwnOnly) {
  Awaited awaited{.is_in_background = true, .is_transferring = true};
  for (const bool shares_core : {false, true}) {
    awaited.shares_core = shares_core;
    Waiting waiting;
    int sleeps = 0;
    int yields = 0;
    for (int i = 0; i < 1000; ++i) {
      const Pause next = waiting.next(awaited);
      if (next == Pause::sleep) waiting.nap(awaited);
      sleeps += next == Pause::sleep ? 1 : 0;
      yields += next == Pause::yield ? 1 : 0;
    }
    EXPECT_EQ(sleeps > 0, shares_core);
    EXPECT_EQ(yields > 0, !shares_core);
  }
}

TEST(WaitingPolicy, AMessageIsAwaitedAwakeForAsLongAsASleepLasts) {
  using std::chrono::microseconds;
  for (const microseconds overrun : {microseconds(0), microseconds(5), microseconds(200)}) {
    Awaited awaited{.polls_transport = true, .nap_overrun = overrun};
    Waiting waiting;
    awaited.waited = Waiting::shortest_sleep(awaited) - microseconds(1);
    EXPECT_EQ(polls_until(waiting, awaited, Pause::sleep), 0);
    awaited.waited = Waiting::shortest_sleep(awaited);
    EXPECT_EQ(waiting.next(awaited), Pause::sleep);
    waiting.nap();
    awaited.waited = microseconds(0);
    EXPECT_EQ(polls_until(waiting, awaited, Pause::sleep), 2) << "only before the first sleep";
    waiting.moved();
    awaited.is_crowded = true;
    EXPECT_GT(polls_until(waiting, awaited, Pause::sleep), 10) << "others need the core";
  }
}

TEST(Naps, AreAsLateAsTheMedian) {
  using std::chrono::microseconds;
  using std::chrono::nanoseconds;
  for (const microseconds slack : {microseconds(0), microseconds(50), microseconds(5'000)})
    for (const microseconds late : {microseconds(2), microseconds(60), microseconds(400)}) {
      Naps naps(slack);
      EXPECT_EQ(naps.overrun(), slack);
      // One of three is much later, since others have the core.
      for (int i = 0; i < 300; ++i)
        naps.ended(microseconds(20), microseconds(20) + (i % 3 == 0 ? microseconds(4'000) : late), i, i);
      EXPECT_GT(naps.overrun(), late / 2);
      EXPECT_LT(naps.overrun(), 2 * late);
    }
  Naps naps{nanoseconds(0)};
  for (int i = 0; i < 100; ++i) naps.ended(microseconds(20), microseconds(20), i, i);
  EXPECT_LT(naps.overrun(), microseconds(1));
  for (int i = 0; i < 100; ++i) naps.ended(microseconds(20), microseconds(70), i, i);
  EXPECT_GT(naps.overrun(), microseconds(25)) << "it grows again";
}

// Others take the core from a rank that sleeps, and keep it until the tick. If it then polled for as long as it has
// slept, all of them would wait for longer.
TEST(Naps, OthersThatHaveTheCoreDoNotKeepARankAwake) {
  using std::chrono::microseconds;
  using std::chrono::nanoseconds;
  constexpr nanoseconds kTick = std::chrono::milliseconds(4);
  constexpr nanoseconds kPoll = microseconds(1);
  nanoseconds now = microseconds(100);
  Naps naps(microseconds(50));
  for (int waits = 0; waits < 100; ++waits) {
    const nanoseconds begin = now;
    Waiting waiting;
    const auto next = [&] {
      return waiting.next({.polls_transport = true, .nap_overrun = naps.overrun(), .waited = now - begin});
    };
    while (next() != Pause::sleep) now += kPoll;
    EXPECT_LT(now - begin, microseconds(150)) << waits;
    const nanoseconds asked = waiting.nap();
    const nanoseconds woken = ((now + asked) / kTick + 1) * kTick;
    naps.ended(asked, woken - now, now / kTick, woken / kTick);
    now = woken;
  }
}

constexpr std::uint64_t kPollNs = 1'000;
constexpr std::uint64_t kMovedBytes = 64 << 10;

/// A message over a transport that moves kMovedBytes in a poll, if the peer is ready, and nothing while it is not
/// polled.
struct Transfer {
  double ns_per_byte;
  std::uint64_t bytes;
  std::uint64_t peer_is_late_ns = 0;
};
struct Waited {
  std::uint64_t took_ns = 0;
  int awake_polls = 0;  ///< that found nothing to move
};

/// A rank waits for the message as the policy says. Moves the clock on.
Waited transfer_under(TransferTime& time, std::uint64_t& now, const Transfer& transfer) {
  const std::uint64_t begin = now;
  std::uint64_t left = transfer.bytes;
  Waiting waiting;
  Waited outcome;
  time.posted(now, transfer.bytes);
  for (;;) {
    now += kPollNs;
    if (now - begin < transfer.peer_is_late_ns) {
      ++outcome.awake_polls;
    } else {
      const std::uint64_t moved = std::min(left, kMovedBytes);
      now += static_cast<std::uint64_t>(static_cast<double>(moved) * transfer.ns_per_byte);
      left -= moved;
    }
    if (left == 0) break;
    if (waiting.next({.polls_transport = true, .is_transferring = now < time.until_ns()}) == Pause::sleep)
      now += static_cast<std::uint64_t>(waiting.nap().count());
  }
  time.done(now, begin, transfer.bytes);
  outcome.took_ns = now - begin;
  return outcome;
}

// As fast as the link, once some messages have shown how fast that is: also if it was faster before.
TEST(WaitingPolicy, ALongTransferIsAsFastAsTheLink) {
  for (const double ns_per_byte : {0.1, 0.5, 2.0, 20.0})
    for (const std::uint64_t bytes : {64 << 10, 1 << 20, 16 << 20, 256 << 20}) {
      TransferTime time;
      std::uint64_t now = 1;
      for (int i = 0; i < 20; ++i) transfer_under(time, now, {0.05, bytes});
      for (int i = 0; i < 30; ++i) transfer_under(time, now, {ns_per_byte, bytes});
      const std::uint64_t took = transfer_under(time, now, {ns_per_byte, bytes}).took_ns;
      const double link_ns = static_cast<double>(bytes) * ns_per_byte;
      const auto polls_ns = static_cast<double>((bytes / kMovedBytes + 2) * kPollNs);
      EXPECT_LE(static_cast<double>(took), 1.1 * (link_ns + polls_ns)) << ns_per_byte << " " << bytes;
    }
}

// A peer that is late costs as many polls as the transfer takes time, and two polls per sleep, also if one was late
// before.
TEST(WaitingPolicy, SleepsIfThePeerIsLate) {
  constexpr Transfer kOnTime{.ns_per_byte = 0.5, .bytes = 1 << 20};
  constexpr Transfer kLate{.ns_per_byte = 0.5, .bytes = 1 << 20, .peer_is_late_ns = 1'000'000'000};
  TransferTime time;
  std::uint64_t now = 1;
  for (int i = 0; i < 20; ++i) transfer_under(time, now, kOnTime);
  for (int i = 0; i < 5; ++i) {
    const Waited late = transfer_under(time, now, kLate);
    EXPECT_LE(late.awake_polls, 3 * 524 + 100 + 4'000 + 40) << i;
    for (int k = 0; k < 3; ++k) transfer_under(time, now, kOnTime);
  }
}

TEST(TransferTime, IsNothingIfNothingIsInFlight) {
  TransferTime time;
  EXPECT_EQ(time.until_ns(), 0u);
  time.posted(1'000, 1 << 20);
  EXPECT_GT(time.until_ns(), 1'000u);
  time.done(2'000, 1'000, 1 << 20);
  EXPECT_EQ(time.until_ns(), 0u);
}

// It counts from what has moved last, and all that is in flight.
TEST(TransferTime, FollowsWhatIsInFlight) {
  TransferTime time;
  time.posted(0, 1'000'000);
  time.done(1'000'000, 0, 1'000'000);
  time.posted(2'000'000, 1'000'000);
  const std::uint64_t one = time.until_ns();
  EXPECT_GE(one, 3'000'000u);
  EXPECT_LE(one, 5'000'000u);
  time.posted(2'000'000, 1'000'000);
  EXPECT_GT(time.until_ns(), one);
}

}  // namespace
}  // namespace penstock::engine
