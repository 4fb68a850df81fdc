#include "preload/shared_times.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "preload/contest.hpp"

namespace penstock::preload {
namespace {

struct alignas(4096) Page {
  std::byte bytes[4096];
};

std::vector<Page> pages_of_ranks() { return std::vector<Page>(SharedTimes::kMostBytes / sizeof(Page) + 1); }

using Ticks = std::function<std::uint64_t(Server)>;

/// A program that makes rooted calls of one operation and length alone.
class Rank {
 public:
  Rank(std::vector<Page>& pages, int rank, int ranks, std::size_t slot)
      : times_(pages.front().bytes, rank, ranks), slot_(slot) {}

  void call(const Ticks& cost) {
    if (contest_.trial().asks()) times_.ask(slot_, contest_.trial());
    bool ends_round = false;
    contest_.play(
        ends_round,
        [&](Server server, bool) {
          servers.push_back(server);
          clock_ += cost(server);
          return 0;
        },
        [&] { return clock_; }, [] { return std::uint64_t{0}; });
    if (ends_round) times_.publish(slot_, contest_.trial());
  }
  Trial& trial() { return contest_.trial(); }

  std::vector<Server> servers{};

 private:
  SharedTimes times_;
  std::size_t slot_;
  Contest contest_{std::uint64_t{8}};
  std::uint64_t clock_ = 0;
};

Ticks ticks_of(std::uint64_t penstock, std::uint64_t mpi) {
  return [=](Server server) { return server == Server::mpi ? mpi : penstock; };
}

TEST(SharedTimes, ThereIsRoomForSomeTrials) {
  std::vector<Page> pages = pages_of_ranks();
  EXPECT_GE(SharedTimes(pages.front().bytes, 0, 8).slots(), 30);
  EXPECT_GE(SharedTimes(pages.front().bytes, 0, 64).slots(), 5);
  EXPECT_EQ(SharedTimes(pages.front().bytes, 0, 5000).slots(), 0);
}

TEST(SharedTimes, RanksThatRunAheadDecideAsTheOthersWill) {
  std::vector<Page> pages = pages_of_ranks();
  for (const std::size_t slot : {0, 7}) {
    std::vector<Rank> ranks;
    for (int rank = 0; rank < 3; ++rank) ranks.emplace_back(pages, rank, 3, slot);
    for (int phase = 0; phase < 20; ++phase) {
      for (int turn = 0; turn < 3; ++turn) {
        Rank& rank = ranks[static_cast<std::size_t>((turn + phase) % 3)];
        for (int i = 0; i < 500; ++i) rank.call(ticks_of(15, 10));
      }
      EXPECT_EQ(ranks[0].servers, ranks[1].servers);
      EXPECT_EQ(ranks[0].servers, ranks[2].servers);
    }
    EXPECT_TRUE(ranks[0].trial().has_chosen());
    EXPECT_EQ(ranks[0].trial().choice(), Server::mpi);
    EXPECT_EQ(ranks[0].servers.back(), Server::mpi);
  }
}

/// It has not published its times when the others ask.
TEST(SharedTimes, NothingIsJudgedBeforeTheLastRankHasEndedTheRound) {
  std::vector<Page> pages = pages_of_ranks();
  Rank ahead(pages, 0, 2, 0);
  Rank behind(pages, 1, 2, 0);
  for (int i = 0; i < 10000; ++i) ahead.call(ticks_of(15, 10));
  EXPECT_EQ(ahead.trial().rounds(), 0);
  EXPECT_EQ(std::count(ahead.servers.begin(), ahead.servers.end(), Server::mpi), 1);
  for (int i = 0; i < 10000; ++i) behind.call(ticks_of(15, 10));
  EXPECT_EQ(behind.servers, ahead.servers);
  for (int i = 0; i < 100000; ++i) {
    ahead.call(ticks_of(15, 10));
    behind.call(ticks_of(15, 10));
  }
  EXPECT_EQ(behind.servers, ahead.servers);
  EXPECT_EQ(ahead.trial().choice(), Server::mpi);
}

TEST(SharedTimes, RanksAtTheSameTimeAgree) {
  constexpr int kRanks = 4;
  std::vector<Page> pages = pages_of_ranks();
  std::vector<Rank> ranks;
  for (int rank = 0; rank < kRanks; ++rank) ranks.emplace_back(pages, rank, kRanks, 3);
  std::barrier meet(kRanks);  // a rank that has run to its end before the others begin agrees with nobody
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      std::minstd_rand random(static_cast<unsigned>(rank + 1));
      for (int i = 0; i < 200000; ++i) {
        if (i % 500 == 0) meet.arrive_and_wait();
        if (random() % 100 == 0) std::this_thread::yield();
        // Who is faster changes.
        const bool is_mpi = i / 40000 % 2 == 1;
        ranks[static_cast<std::size_t>(rank)].call(ticks_of(is_mpi ? 15 : 10, is_mpi ? 10 : 15));
      }
    });
  for (std::thread& each : threads) each.join();
  for (const Rank& each : ranks) EXPECT_EQ(each.servers, ranks.front().servers);
  EXPECT_GT(ranks.front().trial().rounds(), 5);
}

}  // namespace
}  // namespace penstock::preload
