#include "conformance/deaths.hpp"

#include <gtest/gtest.h>

#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <vector>

#include "penstock/error.hpp"

namespace penstock::conformance {
namespace {

using Clock = std::chrono::steady_clock;

/// Calls until an error is thrown. Returns what is wrong with the error, or an empty string.
std::string problem_of_next_error(const std::function<void()>& call, int victim) {
  try {
    for (;;) call();
  } catch (const Error& error) {
    const std::string name = "rank " + std::to_string(victim) + " has gone";
    if (error.code() == ErrorCode::peer_failed && error.rank() == victim &&
        error.message().find(name) != std::string::npos)
      return {};
    return "told of rank " + std::to_string(error.rank()) + ": " + error.what();
  }
}

[[noreturn]] void die_at(std::uint32_t moment, Clock::duration busy, bool stops_first,
                         const std::function<void()>& call) {
  const auto whole_us = std::chrono::duration_cast<std::chrono::microseconds>(busy).count();
  const std::int64_t us = std::max<std::int64_t>(1, whole_us * static_cast<std::int64_t>(moment >> 8) >> 24);
  const itimerval timer{{0, 0}, {us / 1'000'000, us % 1'000'000}};
  ::signal(SIGALRM, SIG_DFL);
  ::setitimer(ITIMER_REAL, &timer, nullptr);
  for (;;) {
    if (stops_first)
      ::pause();
    else
      call();
  }
}

}  // namespace

Death death(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](std::uint32_t below) { return random() % below; };
  Death each{};
  each.seed = seed;
  each.ranks = 2 + static_cast<int>(pick(4));
  each.placement = pick(3) == 0 ? Placement::unequal : Placement::one_node;
  each.count = std::vector<std::uint64_t>{1, 500, 20'000, 300'000}[pick(4)];
  each.victim = static_cast<int>(pick(static_cast<std::uint32_t>(each.ranks)));
  // A failed long message to another node completes only after its receiver has received the rest. A receiver that
  // has already returned an error makes no further calls, so its progress thread must do that.
  each.progress_threads = each.placement == Placement::one_node ? static_cast<int>(pick(2)) : 1;
  each.single_copy = pick(3) != 0;
  each.by_test = pick(2) == 0;
  each.leaves_child = pick(3) == 0;
  each.stops_first = pick(4) == 0;
  each.moment = random();
  return each;
}

Death death_in_short_call(std::uint32_t seed) {
  Death each = death(seed);
  std::mt19937 random(seed + 1);
  each.placement = Placement::alone;
  each.count = std::vector<std::uint64_t>{1, 40, 300}[random() % 3];
  each.progress_threads = static_cast<int>(random() % 4) / 3;
  each.by_test = false;
  each.is_blocking = true;
  return each;
}

Death death_in_blocking_call(std::uint32_t seed) {
  Death each = death(seed);
  each.placement = Placement::one_node;
  each.progress_threads = static_cast<int>(std::mt19937(seed + 1)() % 4) / 3;
  each.by_test = false;
  each.is_blocking = true;
  return each;
}

std::string describe(const Death& each) {
  return std::to_string(each.count) + " elements on " + std::to_string(each.ranks) + " ranks (placement " +
         std::to_string(static_cast<int>(each.placement)) + "), victim " + std::to_string(each.victim) +
         (each.leaves_child ? " with a child" : "") + (each.stops_first ? " that stops first" : "") + ", " +
         std::to_string(each.progress_threads) + " progress threads" +
         (each.is_blocking ? ", in blocking calls"
          : each.by_test   ? ", by test()"
                           : ", by wait()") +
         (each.single_copy ? "" : ", without single copies") + ", seed " + std::to_string(each.seed);
}

int deaths_per_row() {
  const char* const asked = std::getenv("PENSTOCK_TEST_DEATHS");
  return asked == nullptr ? 2 : std::atoi(asked);
}

std::uint32_t first_seed(std::uint32_t own) {
  const char* const asked = std::getenv("PENSTOCK_TEST_DEATH_SEED");
  return asked == nullptr ? own : static_cast<std::uint32_t>(std::strtoul(asked, nullptr, 10));
}

std::string call_until_told(ForkedRank& self, const Death& each, const std::function<void()>& call) {
  if (self.rank == each.victim) {
    constexpr int kCalls = 3;
    const auto begin = Clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    const Clock::duration busy = Clock::now() - begin;
    if (each.leaves_child) self.fork_child();
    die_at(each.moment, busy, each.stops_first, call);
  }
  // From the first call: the victim may be further ahead, and its worker dies with a task of an earlier operation.
  std::string problem = problem_of_next_error(call, each.victim);
  if (problem.empty()) {
    problem = problem_of_next_error(call, each.victim);
    if (!problem.empty()) problem = "the next call: " + problem;
  }
  self.barrier(each.ranks - 1);  // keeps this process alive: the others would detect its end too
  return problem.empty() ? "ok" : problem;
}

void expect_told(const Death& each, const std::function<std::string(ForkedRank&)>& body) {
  SCOPED_TRACE(describe(each));
  const std::vector<Outcome> outcomes = run_forked(place(each.placement, each.ranks), body);
  for (int rank = 0; rank < each.ranks; ++rank) {
    const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    if (rank == each.victim)
      EXPECT_TRUE(outcome.killed) << outcome.text;
    else
      EXPECT_EQ(outcome.text, "ok") << "rank " << rank << (outcome.killed ? " hung" : "");
  }
}

}  // namespace penstock::conformance
