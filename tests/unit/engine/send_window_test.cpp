// The window of long messages, over a simulated link: it is kept busy, and no more is posted than that needs.
#include "engine/remote/send_window.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "engine/remote/long_messages.hpp"

namespace penstock::engine {
namespace {

constexpr std::uint64_t kMessageBytes = 1 << 20;

struct Link {
  std::uint64_t message_ns;  ///< that the link needs for a message
  std::uint64_t poll_ns;     ///< between two polls of the sender
};

struct Outcome {
  double busy_share = 0;
  std::uint32_t most_in_flight = 0;
};

/// Sends `messages` messages one after another, and looks at the last half. Moves the clock on.
Outcome send(SendWindow& window, std::uint64_t& now, const Link& link, int messages) {
  std::deque<std::pair<std::uint64_t, std::uint64_t>> in_flight;  // posted, sent
  std::uint64_t free_at = now;
  std::uint64_t began = 0;
  int posted = 0;
  int done = 0;
  Outcome outcome;
  while (done < messages) {
    window.poll(now, !in_flight.empty());
    bool moved = false;
    while (!in_flight.empty() && in_flight.front().second <= now) {
      window.done(in_flight.front().first, kMessageBytes);
      in_flight.pop_front();
      moved = true;
      if (++done == messages / 2) began = now;
    }
    while (posted < messages && in_flight.size() < window.messages()) {
      free_at = std::max(free_at, now) + link.message_ns;
      in_flight.emplace_back(now, free_at);
      ++posted;
      moved = true;
    }
    if (moved || posted == messages)
      window.moved(posted < messages);
    else
      window.stuck(now);
    if (done > messages / 2)
      outcome.most_in_flight = std::max(outcome.most_in_flight, static_cast<std::uint32_t>(in_flight.size()));
    now += link.poll_ns;
  }
  outcome.busy_share = static_cast<double>(static_cast<std::uint64_t>(messages - messages / 2) * link.message_ns) /
                       static_cast<double>(std::max(free_at, now - link.poll_ns) - began);
  return outcome;
}

TEST(SendWindow, KeepsTheLinkBusyWithFewMessages) {
  for (const std::uint64_t message_ns : {5'000, 60'000, 500'000, 8'000'000})
    for (const std::uint64_t poll_ns : {1'000, 20'000, 500'000, 4'000'000}) {
      SendWindow window;
      std::uint64_t now = 1;
      const Outcome outcome =
          send(window, now, {message_ns, poll_ns}, 400 + 40 * static_cast<int>(poll_ns / message_ns));
      EXPECT_GE(outcome.busy_share, 0.95) << message_ns << " " << poll_ns;
      EXPECT_LE(outcome.most_in_flight, 5 + 3 * poll_ns / message_ns) << message_ns << " " << poll_ns;
    }
}

// The sender's polls became rare, and frequent again; the link slow, and fast again.
TEST(SendWindow, FollowsTheLinkAndTheSender) {
  SendWindow window;
  std::uint64_t now = 1;
  for (const Link link : {Link{50'000, 1'000}, Link{50'000, 2'000'000}, Link{50'000, 1'000}, Link{5'000'000, 1'000},
                          Link{5'000, 1'000}}) {
    const Outcome outcome = send(window, now, link, 2'000);
    EXPECT_GE(outcome.busy_share, 0.95) << link.message_ns << " " << link.poll_ns;
    EXPECT_LE(outcome.most_in_flight, 5 + 3 * link.poll_ns / link.message_ns) << link.message_ns << " " << link.poll_ns;
  }
}

/// A transport moves messages only when it is polled, and then what it has buffered. Its rank sleeps as the window
/// says, if that is worth it. Returns the nanoseconds for a message, at the end.
double send_polled(SendWindow& window, std::uint64_t& now, double ns_per_byte, int messages) {
  constexpr std::uint64_t kShortestNapNs = 20'000;
  constexpr double kBufferBytes = 64 << 10;
  double left = kMessageBytes;
  std::uint64_t posted = now;
  std::uint64_t began = 0;
  for (int done = 0; done < messages;) {
    window.poll(now, true);
    if (left <= 0) {
      window.done(posted, kMessageBytes);
      posted = now;
      left = kMessageBytes;
      if (++done == messages / 2) began = now;
    }
    const std::uint64_t nap = window.nap_ns();
    const std::uint64_t away = nap < kShortestNapNs ? 1'000 : nap;
    left -= std::min(static_cast<double>(away) / ns_per_byte, kBufferBytes);
    now += away;
  }
  return static_cast<double>(now - began) / (messages - messages / 2);
}

TEST(LongMessages, NeedFewPollsInTheBackground) {
  for (const std::uint64_t bytes : {16 << 10, 60 << 10, 256 << 10, 1 << 20, 2 << 20, 64 << 20}) {
    const auto unpolled_bytes =
        static_cast<std::uint64_t>(LongMessages::naps_at_once(bytes)) * SendWindow::unpolled_bytes();
    EXPECT_LE(unpolled_bytes, std::max<std::uint64_t>(bytes / 16, 16 << 10)) << "the end of it would be found late";
    EXPECT_LE(unpolled_bytes, 128u << 10) << "what a transport may buffer";
  }
  EXPECT_EQ(LongMessages::naps_at_once(2 << 20), 8);
}

// However slow it has seemed: sleeping must not make the link slow.
TEST(SendWindow, SleepsOnlyWhereTheLinkIsSlow) {
  for (const double ns_per_byte : {0.1, 0.5, 1.0, 2.0, 8.0, 80.0}) {
    SendWindow window;
    std::uint64_t now = 1;
    send_polled(window, now, 300, 30);
    EXPECT_GT(window.nap_ns(), 1'000'000u);
    send_polled(window, now, ns_per_byte, 200);
    const double took = send_polled(window, now, ns_per_byte, 100);
    EXPECT_LE(took, 1.1 * kMessageBytes * ns_per_byte + 20'000) << ns_per_byte;
    // It looks at the link again from time to time.
    int asleep = 0;
    for (int i = 0; i < 40; ++i) {
      send_polled(window, now, ns_per_byte, 1);
      asleep += window.nap_ns() > 20'000u ? 1 : 0;
    }
    if (ns_per_byte >= 2) {
      EXPECT_GE(asleep, 30) << ns_per_byte;
    }
  }
}

// Its peers may make a message slow. A rank that waits stays awake then, but nobody waits for a thread in the
// background.
TEST(SendWindow, ASlowMessageKeepsOnlyThoseAwakeWhoWait) {
  constexpr std::uint64_t kPollNs = 1'000;
  SendWindow window;
  std::uint64_t now = 1;
  const auto send_awake = [&](std::uint64_t polls) {
    const std::uint64_t posted = now;
    for (std::uint64_t i = 0; i < polls; ++i) window.poll(now += kPollNs, true);
    window.done(posted, kMessageBytes);
  };
  for (int i = 0; i < 100; ++i) send_awake(8 * kMessageBytes / kPollNs);
  const std::uint64_t usual_nap = window.background_nap_ns();
  EXPECT_GT(usual_nap, 100'000u);
  EXPECT_EQ(window.nap_ns(), usual_nap);
  for (int i = 0; i < 2; ++i) send_awake(80 * kMessageBytes / kPollNs);
  EXPECT_EQ(window.nap_ns(), 0u);
  EXPECT_GE(window.background_nap_ns(), usual_nap);
  EXPECT_LE(window.background_nap_ns(), 2 * usual_nap);
}

/// Messages one after the other, each of which needs some polls, as handshakes do, and the time on the link. Sleeps
/// last longer than asked. Returns the nanoseconds for a message, at the end.
double answer(SendWindow& window, std::uint64_t& now, std::uint64_t message_ns, int messages, int polls = 3) {
  constexpr std::uint64_t kBytes = 32 << 10;
  constexpr std::uint64_t kSleepNs = 75'000;
  std::uint64_t began = 0;
  for (int done = 0; done < messages; ++done) {
    if (done == messages / 2) began = now;
    const std::uint64_t posted = now;
    for (int polled = 0; polled < polls || now < posted + message_ns; ++polled) {
      window.poll(now, true);
      const std::uint64_t nap = window.nap_ns();
      now += nap < kSleepNs ? 1'000 : kSleepNs;
    }
    window.poll(now, true);
    window.done(posted, kBytes);
  }
  return static_cast<double>(now - began) / (messages - messages / 2);
}

// Whatever made a fast link seem slow once, also if each message then takes some sleeps.
TEST(SendWindow, ALinkIsNotSlowSinceItsRankSleeps) {
  for (const std::uint64_t slow_ns : {500'000, 5'000'000})
    for (const int polls : {1, 3, 12}) {
      SendWindow window;
      std::uint64_t now = 1;
      answer(window, now, slow_ns, 50, polls);
      EXPECT_GT(window.nap_ns(), 100'000u);
      const double took = answer(window, now, 16'000, 400, polls);
      EXPECT_LE(took, 20'000) << slow_ns << " " << polls;
    }
}

// A peer that is late now and then makes no link slow.
TEST(SendWindow, ALinkIsNotSlowSinceItsPeerIsLate) {
  SendWindow window;
  std::uint64_t now = 1;
  for (int i = 0; i < 200; ++i) {
    answer(window, now, i % 8 == 7 ? 3'000'000 : 16'000, 1);
    EXPECT_LT(window.nap_ns(), 75'000u) << i;
  }
}

// It is watched now and then.
TEST(SendWindow, ASlowLinkStaysSlow) {
  SendWindow window;
  std::uint64_t now = 1;
  answer(window, now, 500'000, 50);
  int asleep = 0;
  for (int i = 0; i < 1'000; ++i) {
    answer(window, now, 500'000, 1);
    asleep += window.nap_ns() > 100'000 ? 1 : 0;
  }
  EXPECT_GT(asleep, 900);
}

// Where the processor moves the bytes while it is polled, a slow transfer is no reason to sleep.
TEST(SendWindow, DoesNotSleepIfThePollsTakeTheTime) {
  SendWindow window;
  std::uint64_t now = 1;
  send_polled(window, now, 8, 30);
  for (int i = 0; i < 100; ++i) window.polled(1'000);
  EXPECT_GT(window.nap_ns(), 20'000u);
  window.polled(5'000'000);  // another process had the core
  EXPECT_GT(window.nap_ns(), 20'000u);
  for (int i = 0; i < 100; ++i) window.polled(60'000);
  EXPECT_EQ(window.nap_ns(), 0u);
  for (int i = 0; i < 100; ++i) window.polled(1'000);
  EXPECT_GT(window.nap_ns(), 20'000u);
}

// The receiver waits for the last of 20 messages, whose turn comes as none is done.
TEST(SendWindow, GrowsIfTheReceiverWaitsForALaterMessage) {
  for (const bool is_measured : {false, true}) {
    SendWindow window;
    std::uint64_t now = 1;
    if (is_measured) send(window, now, {50'000, 1'000}, 100);
    int polls = 0;
    for (; window.messages() < 20; ++polls, now += 1'000) {
      ASSERT_LT(polls, 1'000'000);
      window.poll(now, true);
      window.stuck(now);
    }
    EXPECT_GT(polls, 200) << "it does not wait for what it has posted";
    window.moved(false);
    EXPECT_LT(window.messages(), 20u);
  }
}

}  // namespace
}  // namespace penstock::engine
