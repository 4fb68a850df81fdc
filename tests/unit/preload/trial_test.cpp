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

/// Plays calls on one rank; a round is judged a round later, as in a job. Returns who served them.
struct Game {
  Trial trial;
  bool has_pending = false;
  Times pending{};
  std::vector<Server> servers{};

  explicit Game(std::uint64_t bytes) : trial(bytes) {}

  void call(double time) {
    servers.push_back(trial.turn());
    if (trial.is_over() || !trial.add(time)) return;
    if (std::exchange(has_pending, true)) trial.judge(pending);
    pending = trial.times();
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
  game.calls(2 + 16 + 16, constant(1, 1));
  std::vector<Server> expected{Server::penstock, Server::mpi};
  for (const Server server : {Server::mpi, Server::penstock, Server::penstock, Server::mpi})
    expected.insert(expected.end(), 8, server);
  EXPECT_EQ(game.servers, expected);
}

TEST(Trial, TheFasterServesTheOthers) {
  for (const auto& [penstock, mpi, winner] :
       {std::tuple{1.0, 2.0, Server::penstock}, {2.0, 1.0, Server::mpi}, {1.1, 1.0, Server::mpi},
        {1.0, 1.1, Server::penstock}}) {
    Game game(8);
    game.calls(200, constant(penstock, mpi));
    EXPECT_TRUE(game.trial.is_over());
    EXPECT_EQ(game.trial.turn(), winner);
    EXPECT_NEAR(game.trial.gain_per_call(), mpi - penstock, 1e-12);
  }
}

TEST(Trial, PenstockStaysIfBothAreEven) {
  Game game(8);
  game.calls(200, constant(1.02, 1));
  EXPECT_TRUE(game.trial.is_over());
  EXPECT_EQ(game.trial.turn(), Server::penstock);
}

TEST(Trial, AClearLeadEndsItEarly) {
  Game clear(8);
  clear.calls(200, constant(1.6, 1));
  Game close(8);
  close.calls(200, constant(1.1, 1));
  EXPECT_EQ(clear.served_by(Server::penstock), 1 + 3 * 8);
  EXPECT_EQ(close.served_by(Server::penstock), 1 + 6 * 8);
}

TEST(Trial, AnMpiThatIsFarSlowerIsNotTriedAgain) {
  Game game(4 << 20);
  game.calls(100, constant(1, 50));
  EXPECT_EQ(game.served_by(Server::mpi), 2);  // the warm-up, and the round until its sum is there
}

TEST(Trial, ASlowFirstCallDoesNotDecide) {
  Game game(8);
  game.calls(200, [](Server server, std::uint64_t call) { return server == Server::mpi ? 1 : call == 0 ? 1000 : 0.9; });
  EXPECT_EQ(game.trial.turn(), Server::penstock);
}

TEST(Trial, ADisturbedRoundDoesNotDecide) {
  for (std::uint64_t disturbed = 2; disturbed < 80; ++disturbed) {
    Game game(8);
    game.calls(200, [&](Server server, std::uint64_t call) {
      return call == disturbed ? 10000 : server == Server::mpi ? 1.1 : 1;
    });
    EXPECT_TRUE(game.trial.is_over());
    EXPECT_EQ(game.trial.turn(), Server::penstock) << disturbed;
  }
}

TEST(Trial, LongCallsHaveShortRounds) {
  const std::map<std::uint64_t, std::uint64_t> calls_to_decide{{8, 1 + 6 * 8}, {256 << 10, 1 + 6 * 4}, {4 << 20, 1 + 6}};
  for (const auto& [bytes, calls] : calls_to_decide) {
    Game game(bytes);
    game.calls(300, constant(1.1, 1));
    EXPECT_EQ(game.served_by(Server::penstock), calls);
  }
}

TEST(Trial, AClockThatStandsStillLeavesItToPenstock) {
  Game game(8);
  game.calls(300, constant(0, 0));
  EXPECT_TRUE(game.trial.is_over());
  EXPECT_EQ(game.trial.turn(), Server::penstock);
  EXPECT_EQ(game.trial.gain_per_call(), 0);
}

}  // namespace
}  // namespace penstock::preload
