#include "preload/trial.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace penstock::preload {
namespace {

using Cost = std::function<double(Server, std::uint64_t call)>;

/// Plays calls on one rank.
struct Game {
  Trial trial;
  std::vector<Server> servers{};
  std::uint64_t measured = 0;

  explicit Game(std::optional<std::uint64_t> bytes) : trial(bytes) {}

  void calls(std::uint64_t count, const Cost& cost, const std::function<double(std::uint64_t call)>& bytes = {}) {
    for (std::uint64_t i = 0; i < count; ++i) {
      const bool rests = trial.rests();
      servers.push_back(rests ? trial.choice() : trial.turn());
      if (rests) continue;
      ++measured;
      if (trial.add(cost(servers.back(), i), bytes ? bytes(i) : 0)) trial.judge(trial.times());
    }
  }
  std::uint64_t served_by(Server server) const {
    return static_cast<std::uint64_t>(std::count(servers.begin(), servers.end(), server));
  }
};

Cost constant(double penstock, double mpi) {
  return [=](Server server, std::uint64_t) { return server == Server::mpi ? mpi : penstock; };
}

TEST(Trial, BeginsWithOneCallEachAndGoesOnInBlocks) {
  Game game(8);
  game.calls(2 + 66 + 66, constant(1, 1));
  std::vector<Server> expected{Server::penstock, Server::mpi};
  for (const Server server : {Server::mpi, Server::penstock, Server::penstock, Server::mpi})
    expected.insert(expected.end(), 33, server);
  EXPECT_EQ(game.servers, expected);
}

TEST(Trial, TheFasterServesTheOthers) {
  for (const auto& [penstock, mpi, winner] : {std::tuple{1.0, 2.0, Server::penstock},
                                              {2.0, 1.0, Server::mpi},
                                              {1.1, 1.0, Server::mpi},
                                              {1.0, 1.1, Server::penstock}}) {
    Game game(8);
    game.calls(1000, constant(penstock, mpi));
    EXPECT_TRUE(game.trial.has_chosen());
    EXPECT_EQ(game.trial.choice(), winner);
    EXPECT_NEAR(game.trial.gain_per_call(), mpi - penstock, 1e-12);
  }
}

TEST(Trial, PenstockStaysIfBothAreEven) {
  Game game(8);
  game.calls(1000, constant(1.02, 1));
  EXPECT_TRUE(game.trial.has_chosen());
  EXPECT_EQ(game.trial.choice(), Server::penstock);
}

TEST(Trial, AClearLeadEndsItEarly) {
  Game far_ahead(8);
  while (!far_ahead.trial.has_chosen())
    far_ahead.calls(
        1, [&](Server server, std::uint64_t) { return server == Server::penstock || far_ahead.measured <= 2 ? 1 : 5; });
  EXPECT_EQ(far_ahead.served_by(Server::mpi), 1 + 33);
  Game twice_as_fast(8);
  twice_as_fast.calls(1000, constant(1, 2));
  EXPECT_EQ(twice_as_fast.served_by(Server::mpi), 1 + 2 * 33);
  Game clear(8);
  clear.calls(1000, constant(1, 1.4));
  EXPECT_EQ(clear.served_by(Server::mpi), 1 + 2 * 33);
  Game behind(8);
  behind.calls(1000, constant(1.4, 1));
  EXPECT_EQ(behind.served_by(Server::penstock), 1 + 2 * 33);
  Game close(8);
  close.calls(1000, constant(1.1, 1));
  EXPECT_EQ(close.served_by(Server::penstock), 1 + 5 * 33);
}

TEST(Trial, CachesThatTheOtherServerLeftDoNotDecide) {
  Game game(1 << 20);
  Server previous = Server::penstock;
  game.calls(40, [&](Server server, std::uint64_t call) {
    const bool is_warm = server == previous && call > 2;
    previous = server;
    return server == Server::penstock ? 1 : is_warm ? 0.8 : 1.3;
  });
  EXPECT_TRUE(game.trial.has_chosen());
  EXPECT_EQ(game.trial.choice(), Server::mpi);
}

TEST(Trial, AnMpiThatIsFarSlowerIsNotTriedAgainSoon) {
  Game game(4 << 20);
  game.calls(200, constant(1, 50));
  EXPECT_EQ(game.served_by(Server::mpi), 2);
  game.calls(100000, constant(1, 50));
  EXPECT_LT(game.served_by(Server::mpi), 12);
  EXPECT_GT(game.served_by(Server::mpi), 1);
}

/// Whatever it says, since a disturbance can make one call look a million times slower than another.
TEST(Trial, OneRoundDoesNotDecideForLong) {
  for (const double slowdown : {5.0, 100.0, 1e9}) {
    Game game(4 << 20);
    game.calls(500, [&](Server server, std::uint64_t call) {
      return server == Server::penstock ? 1.2 : call < 2 ? slowdown : 1;
    });
    EXPECT_EQ(game.trial.choice(), Server::mpi) << slowdown;
    EXPECT_GT(game.served_by(Server::penstock), 50);
  }
}

TEST(Trial, ASlowFirstCallDoesNotDecide) {
  Game game(8);
  game.calls(1000, [](Server server, std::uint64_t call) {
    return server == Server::mpi ? 1 : call == 0 ? 1000 : 0.9;
  });
  EXPECT_EQ(game.trial.choice(), Server::penstock);
}

/// An MPI may set up what it needs in its first calls.
TEST(Trial, SlowFirstCallsOfMpiDoNotDecide) {
  for (const std::uint64_t slow_calls : {1, 2, 20, 34}) {
    for (const double slow : {1.5, 3.0, 10.0, 1000.0}) {
      if (slow_calls > 1 && slow >= 10) continue;  // would be tried too often, if MPI stays so slow
      Game game(8);
      std::uint64_t by_mpi = 0;
      game.calls(1000, [&](Server server, std::uint64_t) {
        if (server == Server::penstock) return 1.2;
        return by_mpi++ < slow_calls ? slow : 1.0;
      });
      EXPECT_EQ(game.trial.choice(), Server::mpi) << slow_calls << " " << slow;
      EXPECT_LT(game.served_by(Server::penstock), 500) << slow_calls << " " << slow;
    }
  }
}

/// A second call that is somewhat slow, as one is that finds cold caches, does not confirm a delayed first one.
TEST(Trial, AChoiceByOneCallIsConfirmedByOneAsClear) {
  for (const double second : {1.1, 1.5, 3.9}) {
    Game game(8);
    std::uint64_t by_mpi = 0;
    game.calls(1000, [&](Server server, std::uint64_t) {
      if (server == Server::penstock) return 1.0;
      ++by_mpi;
      return by_mpi == 1 ? 1000 : by_mpi == 2 ? second : 0.5;
    });
    EXPECT_EQ(game.trial.choice(), Server::mpi) << second;
    EXPECT_LT(game.served_by(Server::penstock), 250) << second;
  }
}

TEST(Trial, ADisturbedRoundDoesNotDecide) {
  for (std::uint64_t disturbed = 2; disturbed < 400; ++disturbed) {
    Game game(8);
    game.calls(1000, [&](Server server, std::uint64_t call) {
      return call == disturbed ? 10000 : server == Server::mpi ? 1.1 : 1;
    });
    EXPECT_TRUE(game.trial.has_chosen());
    EXPECT_EQ(game.trial.choice(), Server::penstock) << disturbed;
  }
}

TEST(Trial, WaitingInTheFirstCallOfABlockDoesNotCount) {
  Game game(8);
  Server last = Server::mpi;
  game.calls(1000, [&](Server server, std::uint64_t) {
    const bool is_first = std::exchange(last, server) != server;
    return server == Server::mpi ? 1.1 : is_first ? 100 : 1;
  });
  EXPECT_TRUE(game.trial.has_chosen());
  EXPECT_EQ(game.trial.choice(), Server::penstock);
}

TEST(Trial, LongCallsHaveShortRounds) {
  const std::map<std::uint64_t, std::uint64_t> calls_to_decide{
      {8, 1 + 5 * 33}, {256 << 10, 1 + 5 * 4}, {4 << 20, 1 + 5}};
  for (const auto& [bytes, calls] : calls_to_decide) {
    Game game(bytes);
    while (!game.trial.has_chosen()) game.calls(1, constant(1.1, 1));
    EXPECT_EQ(game.served_by(Server::penstock), calls);
  }
}

/// It is what the program had, and of long calls there may be few.
TEST(Trial, LongCallsAreMpisAsSoonAsItLeads) {
  const std::map<std::uint64_t, std::uint64_t> calls_by_penstock{{256 << 10, 1 + 4}, {1 << 20, 1 + 2}, {4 << 20, 1}};
  for (const auto& [bytes, calls] : calls_by_penstock) {
    Game game(bytes);
    game.calls(50, constant(1.3, 1));
    EXPECT_EQ(game.trial.choice(), Server::mpi);
    EXPECT_EQ(game.served_by(Server::penstock), calls) << bytes;
  }
}

/// Penstock's first call of a length may use new memory.
TEST(Trial, OneRoundOfLongCallsIsNotEnoughForMpiIfPenstockLeadsWithShorterOnes) {
  Game shorter(1 << 20);
  EXPECT_FALSE(shorter.trial.penstock_leads());
  shorter.calls(50, constant(1, 2));
  EXPECT_TRUE(shorter.trial.penstock_leads());
  for (const std::uint64_t bytes : {256 << 10, 1 << 20, 4 << 20}) {
    Game game(bytes);
    game.trial.expect_penstock();
    game.calls(50, [](Server server, std::uint64_t call) { return server == Server::mpi ? 2 : call < 2 ? 6 : 1; });
    EXPECT_TRUE(game.trial.penstock_leads());
    EXPECT_LT(game.served_by(Server::mpi), 12) << bytes;
    Game wrong(bytes);
    wrong.trial.expect_penstock();
    wrong.calls(50, constant(2, 1));
    EXPECT_EQ(wrong.trial.choice(), Server::mpi);
    EXPECT_LT(wrong.served_by(Server::penstock), 12) << bytes;
    EXPECT_FALSE(wrong.trial.penstock_leads());
  }
}

TEST(Trial, ALeadOfMpiInOneRoundOfLongCallsIsCorrected) {
  for (const std::uint64_t bytes : {256 << 10, 1 << 20, 4 << 20}) {
    for (const std::uint64_t slow_calls : {1, 2, 3}) {
      Game game(bytes);
      std::uint64_t by_penstock = 0;
      game.calls(20000, [&](Server server, std::uint64_t) {
        return server == Server::mpi ? 1.2 : by_penstock++ < slow_calls ? 3 : 1;
      });
      EXPECT_EQ(game.trial.choice(), Server::penstock) << bytes << " " << slow_calls;
      EXPECT_GT(game.served_by(Server::penstock), 15000) << bytes << " " << slow_calls;
    }
  }
}

TEST(Trial, AClockThatStandsStillLeavesItToPenstock) {
  Game game(8);
  game.calls(1000, constant(0, 0));
  EXPECT_TRUE(game.trial.has_chosen());
  EXPECT_EQ(game.trial.choice(), Server::penstock);
  EXPECT_EQ(game.trial.gain_per_call(), 0);
}

/// Calls of which the first ones, and those in `disturbed` parts of 100, take long by one of both: its ranks share a
/// core.
TEST(Trial, AChoiceOfDisturbedCallsIsCorrected) {
  for (const Server truly : {Server::penstock, Server::mpi}) {
    for (const std::uint64_t disturbed : {100, 200, 1000, 10000}) {
      for (const double factor : {1.5, 3.0, 30.0}) {
        Game game(8);
        const std::uint64_t calls = 40 * disturbed + 50000;
        game.calls(calls, [&](Server server, std::uint64_t call) {
          return server == truly ? (call < disturbed ? factor : 1) : 1.2;
        });
        EXPECT_EQ(game.trial.choice(), truly) << disturbed << " " << factor;
        game.servers.clear();
        game.calls(calls, [&](Server server, std::uint64_t) { return server == truly ? 1 : 1.2; });
        EXPECT_GT(game.served_by(truly), 99 * calls / 100);
      }
    }
  }
}

TEST(Trial, OneOfFiveRoundsIsNotEnoughForAChange) {
  for (std::uint64_t disturbed = 1000; disturbed < 100000; disturbed += 97) {
    Game game(8);
    game.calls(disturbed, constant(1, 1.1));
    game.calls(100, constant(100, 1));
    game.calls(20000, constant(1, 1.1));
    ASSERT_EQ(game.trial.choice(), Server::penstock) << disturbed;
  }
}

TEST(Trial, WhatIsLostIsBelowOnePercent) {
  for (const double slower : {1.01, 1.1, 1.3, 1.7, 3.0, 5.0, 100.0}) {
    for (const Server truly : {Server::penstock, Server::mpi}) {
      for (const std::uint64_t bytes : {8, 256 << 10, 4 << 20}) {
        Game game(bytes);
        const Cost cost = constant(truly == Server::penstock ? 1 : slower, truly == Server::mpi ? 1 : slower);
        game.calls(20000, cost);  // before there is a choice, too
        game.servers.clear();
        game.measured = 0;
        const std::uint64_t calls = 1000000;
        game.calls(calls, cost);
        const Server other = truly == Server::penstock ? Server::mpi : Server::penstock;
        if (slower > 1.03) {
          EXPECT_LT((slower - 1) * static_cast<double>(game.served_by(other)), 0.01 * calls) << slower;
        }
        EXPECT_LT(game.measured, calls / 20);
        EXPECT_GT(game.measured, 0);
      }
    }
  }
}

/// Calls of which each has a length of its own, which no rank knows of the others.
TEST(TrialOfLengths, TheFirstRoundTellsHowManyCallsTheNextHas) {
  const std::map<double, std::uint64_t> calls_of_block{{8, 33}, {64 << 10, 16}, {4 << 20, 5}};
  for (const auto& [bytes, calls] : calls_of_block) {
    Game game(std::nullopt);
    const double length = bytes;
    game.calls(2 + 2 * calls, constant(1, 1.1), [=](std::uint64_t) { return length; });
    std::vector<Server> expected{Server::penstock, Server::mpi};
    for (const Server server : {Server::mpi, Server::penstock}) expected.insert(expected.end(), calls, server);
    EXPECT_EQ(game.servers, expected);
  }
}

TEST(TrialOfLengths, LengthsThatTakeTurnsAreCompared) {
  for (const std::uint64_t period : {2, 4}) {
    for (const auto& [penstock, mpi] : {std::pair{1.0, 1.1}, {1.1, 1.0}}) {
      for (const double longest : {8e4, 8e6}) {
        const auto bytes = [=](std::uint64_t call) { return call % period == 0 ? longest : 8.0; };
        Game game(std::nullopt);
        game.calls(
            3000,
            [&](Server server, std::uint64_t call) { return bytes(call) * (server == Server::mpi ? mpi : penstock); },
            bytes);
        EXPECT_TRUE(game.trial.has_chosen());
        EXPECT_EQ(game.trial.choice(), penstock < mpi ? Server::penstock : Server::mpi) << period << " " << longest;
      }
    }
  }
}

/// MPI's calls are the short ones, so it looks faster by calls, and slower by bytes.
TEST(TrialOfLengths, BlocksOfUnlikeLengthsDoNotDecide) {
  for (const double short_bytes : {0.0, 8.0}) {
    Game game(std::nullopt);
    const auto bytes = [&](std::uint64_t) { return game.servers.back() == Server::mpi ? short_bytes : 1e4; };
    game.calls(
        10000, [](Server server, std::uint64_t) { return server == Server::mpi ? 1 : 50; }, bytes);
    EXPECT_FALSE(game.trial.has_chosen());
    EXPECT_EQ(game.trial.choice(), Server::penstock);
    EXPECT_LT(game.served_by(Server::mpi), 10000 / 50);
  }
}

TEST(TrialOfLengths, ALeadByCallsAndByBytesDecides) {
  for (const Server truly : {Server::penstock, Server::mpi}) {
    Game game(std::nullopt);
    const auto bytes = [&](std::uint64_t) { return game.servers.back() == Server::mpi ? 1000 : 1500; };
    game.calls(
        1000, [&](Server server, std::uint64_t) { return server == truly ? 1 : 3; }, bytes);
    EXPECT_EQ(game.trial.choice(), truly);
    EXPECT_NEAR(game.trial.gain_per_call(), truly == Server::penstock ? 2 : -1, 0.51);  // of the closer comparison
  }
}

/// The rests do not grow, so a choice for short calls does not last when they become long.
TEST(TrialOfLengths, AChoiceFollowsTheLengths) {
  Game game(std::nullopt);
  double length = 8;
  const auto bytes = [&](std::uint64_t) { return length; };
  game.calls(1000000, constant(1.2, 1), bytes);
  EXPECT_EQ(game.trial.choice(), Server::mpi);
  length = 1 << 20;
  game.calls(20000, constant(1, 1.2), bytes);
  EXPECT_EQ(game.trial.choice(), Server::penstock);
}

TEST(TrialOfLengths, WhatIsLostIsBelowOnePercent) {
  for (const double slower : {1.1, 1.7, 5.0, 100.0}) {
    for (const double longest : {8.0, 8e6}) {
      Game game(std::nullopt);
      const auto bytes = [=](std::uint64_t call) { return call % 3 == 0 ? longest : 8.0; };
      const Cost cost = constant(slower, 1);
      game.calls(20000, cost, bytes);
      game.servers.clear();
      const std::uint64_t calls = 1000000;
      game.calls(calls, cost, bytes);
      EXPECT_LT((slower - 1) * static_cast<double>(game.served_by(Server::penstock)), 0.01 * calls) << slower;
      EXPECT_GT(game.served_by(Server::penstock), 0);
    }
  }
}

TEST(Trial, RoundsBesideTheProgramAreRarer) {
  Trial trial(8, Trial::Cost::all_calls);
  const std::uint64_t block = 16;
  std::uint64_t beside = 0;
  std::uint64_t calls = 0;
  while (calls < 1000000) {
    if (trial.rests()) {
      ++calls;
      continue;
    }
    trial.hold();
    EXPECT_TRUE(trial.rests());
    trial.set_block_calls(block);
    do {
      beside += 2 * block;
      trial.judge({1, 1.1});
    } while (!trial.has_chosen());
  }
  EXPECT_LT(beside, calls / 100);
  EXPECT_GT(beside, 12 * block);
}

}  // namespace
}  // namespace penstock::preload
