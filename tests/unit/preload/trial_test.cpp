#include "preload/trial.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
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

  explicit Game(std::uint64_t bytes) : trial(bytes) {}

  void call(double time) {
    servers.push_back(trial.turn());
    if (trial.is_over()) return;
    if (trial.add(time)) trial.judge(trial.times());
  }
  void calls(std::uint64_t count, const Cost& cost) {
    for (std::uint64_t i = 0; i < count; ++i) call(cost(trial.turn(), i));
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
    EXPECT_TRUE(game.trial.is_over());
    EXPECT_EQ(game.trial.turn(), winner);
    EXPECT_NEAR(game.trial.gain_per_call(), mpi - penstock, 1e-12);
  }
}

TEST(Trial, PenstockStaysIfBothAreEven) {
  Game game(8);
  game.calls(1000, constant(1.02, 1));
  EXPECT_TRUE(game.trial.is_over());
  EXPECT_EQ(game.trial.turn(), Server::penstock);
}

TEST(Trial, AClearLeadEndsItEarly) {
  Game far_ahead(8);
  far_ahead.calls(1000, constant(1, 2));
  EXPECT_EQ(far_ahead.served_by(Server::mpi), 1 + 33);
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

TEST(Trial, AnMpiThatIsFarSlowerIsNotTriedAgain) {
  Game game(4 << 20);
  game.calls(200, constant(1, 50));
  EXPECT_EQ(game.served_by(Server::mpi), 1);
}

TEST(Trial, ASlowFirstCallDoesNotDecide) {
  Game game(8);
  game.calls(1000, [](Server server, std::uint64_t call) {
    return server == Server::mpi ? 1 : call == 0 ? 1000 : 0.9;
  });
  EXPECT_EQ(game.trial.turn(), Server::penstock);
}

TEST(Trial, ADisturbedRoundDoesNotDecide) {
  for (std::uint64_t disturbed = 2; disturbed < 400; ++disturbed) {
    Game game(8);
    game.calls(1000, [&](Server server, std::uint64_t call) {
      return call == disturbed ? 10000 : server == Server::mpi ? 1.1 : 1;
    });
    EXPECT_TRUE(game.trial.is_over());
    EXPECT_EQ(game.trial.turn(), Server::penstock) << disturbed;
  }
}

TEST(Trial, WaitingInTheFirstCallOfABlockDoesNotCount) {
  Game game(8);
  Server last = Server::mpi;
  game.calls(1000, [&](Server server, std::uint64_t) {
    const bool is_first = std::exchange(last, server) != server;
    return server == Server::mpi ? 1.1 : is_first ? 100 : 1;
  });
  EXPECT_TRUE(game.trial.is_over());
  EXPECT_EQ(game.trial.turn(), Server::penstock);
}

TEST(Trial, LongCallsHaveShortRounds) {
  const std::map<std::uint64_t, std::uint64_t> calls_to_decide{
      {8, 1 + 5 * 33}, {256 << 10, 1 + 5 * 4}, {4 << 20, 1 + 5}};
  for (const auto& [bytes, calls] : calls_to_decide) {
    Game game(bytes);
    game.calls(1000, constant(1.1, 1));
    EXPECT_EQ(game.served_by(Server::penstock), calls);
  }
}

TEST(Trial, AClockThatStandsStillLeavesItToPenstock) {
  Game game(8);
  game.calls(1000, constant(0, 0));
  EXPECT_TRUE(game.trial.is_over());
  EXPECT_EQ(game.trial.turn(), Server::penstock);
  EXPECT_EQ(game.trial.gain_per_call(), 0);
}

}  // namespace
}  // namespace penstock::preload
