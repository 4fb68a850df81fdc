// The contract of the rows' costs: each agrees with the simulation of the plans that the row makes. And what is chosen
// by them.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/collective.hpp"
#include "penstock/cost_model.hpp"

namespace penstock {
namespace {

bool all() {
  const char* value = std::getenv("PENSTOCK_TEST_ALL");
  return value != nullptr && std::string_view(value) == "1";
}

Team blocks(int nodes, int ranks_per_node) {
  Team team;
  for (int rank = 0; rank < nodes * ranks_per_node; ++rank) team.node_of_rank.push_back(rank / ranks_per_node);
  return team;
}

Team in_turns(int nodes, int ranks_per_node) {
  Team team;
  for (int rank = 0; rank < nodes * ranks_per_node; ++rank) team.node_of_rank.push_back(rank % nodes);
  return team;
}

std::string described(const Team& team) {
  std::string text;
  for (const std::int32_t node : team.node_of_rank) text += std::to_string(node) + " ";
  return team.size() > 64 ? std::to_string(team.size()) + " ranks" : text;
}

std::vector<Plan> plan_all(const Team& given, const Collective& collective) {
  Team team = given;
  std::vector<Plan> plans;
  for (team.rank = 0; team.rank < team.size(); ++team.rank) plans.push_back(plan_collective(team, collective));
  return plans;
}

double simulated(const Team& team, const Collective& collective, const Machine& machine) {
  return simulated_seconds(plan_all(team, collective), team, machine);
}

Collective request(CollectiveKind kind, std::uint64_t bytes, std::string_view algorithm = "") {
  Collective collective{.kind = kind, .count = bytes / 4, .dtype = DType::float32};
  collective.algorithm = std::string(algorithm);
  return collective;
}

int node_count(const Team& team) { return *std::ranges::max_element(team.node_of_rank) + 1; }

/// The largest error, as a share of the time. Where some nodes leave their data to a neighbour, their partners wait for
/// each other in other ways than the two nodes that are followed.
double most_error(const Team& team, const Algorithm& row) {
  const bool leaves_some = row.name.ends_with("doubling") || row.name.ends_with("rabenseifner");
  const int nodes = node_count(team);
  return leaves_some && nodes > 4 && !std::has_single_bit(static_cast<unsigned>(nodes)) ? 0.4 : 0.25;
}

std::vector<Team> teams() {
  std::vector<Team> teams = {blocks(3, 1), blocks(8, 1), blocks(24, 1), blocks(4, 4), in_turns(5, 3), blocks(1, 4)};
  teams.push_back({.node_of_rank = {0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 4, 4}});
  if (!all()) return teams;
  for (Team& more : std::vector<Team>{blocks(2, 1), blocks(2, 16), blocks(5, 16), blocks(16, 4), blocks(64, 1),
                                      blocks(64, 4), blocks(256, 1), blocks(1024, 1), blocks(32, 32)})
    teams.push_back(std::move(more));
  return teams;
}

TEST(Costs, AgreeWithTheSimulationOfTheirPlans) {
  const std::vector<std::string> networks =
      all() ? std::vector<std::string>{"tcp-1g", "tcp-25g", "rdma-100g", "rdma-200g", "slingshot", "omni-path"}
            : std::vector<std::string>{"tcp-1g", "rdma-100g"};
  std::map<std::string, int> points;
  std::vector<double> errors;
  for (const Team& team : teams())
    for (const std::string& network : networks)
      for (const std::uint64_t bytes : {8u, 16384u, 200'000u, 1u << 20}) {
        // Of all ranks together: the simulation is what takes the time.
        if (bytes * static_cast<std::uint64_t>(team.size()) > (all() ? 256u << 20 : 8u << 20)) continue;
        const Machine machine = machine_with(network);
        for (const Algorithm& row : algorithms()) {
          const Collective collective = request(row.kind, row.kind == CollectiveKind::barrier ? 0 : bytes, row.name);
          if (has_counts(row.kind) || !row.fits(team, collective)) continue;
          const std::optional<double> cost = row.seconds(team, collective, machine);
          if (!cost) continue;
          const std::string what = std::string(name(row.kind)) + "/" + std::string(row.name);
          const double seconds = simulated(team, collective, machine);
          errors.push_back(std::abs(*cost / seconds - 1));
          EXPECT_LE(errors.back(), most_error(team, row))
              << what << ", " << bytes << " bytes, " << network << ", nodes " << described(team);
          ++points[what];
        }
      }
  EXPECT_GE(points.size(), 50u);
  ASSERT_FALSE(errors.empty());
  std::ranges::sort(errors);
  EXPECT_LE(errors[errors.size() * 95 / 100], 0.1);
  EXPECT_LE(errors[errors.size() / 2], 0.001);
  for (const char* row : {"bcast/leader_chain", "reduce/leader_rabenseifner", "allreduce/leader_ring",
                          "allreduce/hierarchical", "allgather/ring", "alltoall/pairwise", "barrier/dissemination"})
    EXPECT_GE(points[row], 10) << row;
}

TEST(Costs, HaveTerms) {
  const Team team = blocks(6, 4);
  const Machine machine = machine_with("omni-path");
  for (const Algorithm& row : algorithms()) {
    const Collective collective = request(row.kind, 100'000, row.name);
    if (has_counts(row.kind) || !row.fits(team, collective)) continue;
    const std::optional<double> seconds = row.seconds(team, collective, machine);
    const std::optional<Cost> cost = row.seconds_by_term(team, collective, machine);
    ASSERT_EQ(seconds.has_value(), cost.has_value()) << name(row.kind) << "/" << row.name;
    if (!cost) continue;
    EXPECT_EQ(cost->seconds, *seconds) << name(row.kind) << "/" << row.name;
    double sum = 0;
    for (const double term : cost->terms) sum += term;
    EXPECT_NEAR(sum, *seconds, *seconds * 1e-9) << name(row.kind) << "/" << row.name;
  }
}

TEST(ChoiceByCost, IsNoWorseThanThresholdsAndCloseToTheBest) {
  double gained = 0;
  for (const std::string network : {"tcp-1g", "rdma-100g"})
    for (const CollectiveKind kind : {CollectiveKind::bcast, CollectiveKind::reduce, CollectiveKind::allreduce})
      for (const std::uint64_t bytes : {8u, 16384u, 1u << 20})
        for (Team team : {blocks(8, 4), blocks(12, 1)}) {
          const Machine machine = machine_with(network);
          const double by_thresholds = simulated(team, request(kind, bytes), machine);
          double best = by_thresholds;
          for (const Algorithm& row : algorithms())
            if (row.kind == kind && (row.name.starts_with("leader_") || row.name == "hierarchical") &&
                row.fits(team, request(kind, bytes)))
              best = std::min(best, simulated(team, request(kind, bytes, row.name), machine));
          team.machine = std::make_shared<const Machine>(machine);
          const double by_cost =
              simulated(team, request(kind, bytes, choose(team, request(kind, bytes)).algorithm->name), machine);
          const std::string what = std::string(name(kind)) + " " + std::to_string(bytes) + " bytes, " + network + ", " +
                                   std::to_string(team.size()) + " ranks";
          EXPECT_LE(by_cost, 1.1 * by_thresholds) << what;
          EXPECT_LE(by_cost, 1.5 * best) << what;
          gained = std::max(gained, by_thresholds / by_cost);
        }
  EXPECT_GT(gained, 1.5);
}

TEST(ChoiceByCost, IsTheSameOnAllRanks) {
  Team team = in_turns(5, 3);
  team.machine = std::make_shared<const Machine>(machine_with("rdma-100g"));
  for (const CollectiveKind kind : {CollectiveKind::bcast, CollectiveKind::reduce, CollectiveKind::allreduce})
    for (const std::uint64_t bytes : {8u, 400'000u}) {
      Collective collective = request(kind, bytes);
      if (is_rooted(kind)) collective.root = 7;
      const Choice first = choose(team, collective);
      EXPECT_NE(first.reason.find("least cost"), std::string::npos) << first.reason;
      for (team.rank = 0; team.rank < team.size(); ++team.rank) {
        Collective own = collective;
        own.in_place = is_rooted(kind) && team.rank == own.root;
        const Choice choice = choose(team, own);
        EXPECT_EQ(choice.algorithm, first.algorithm);
        EXPECT_EQ(choice.reason, first.reason);
      }
      team.rank = 0;
    }
}

TEST(ChoiceByCost, LeavesOneNodeAndOtherRequestsAlone) {
  const auto same = [](Team team, Collective collective) {
    const Choice without = choose(team, collective);
    team.machine = std::make_shared<const Machine>(machine_with("tcp-1g"));
    const Choice with = choose(team, collective);
    EXPECT_EQ(with.algorithm, without.algorithm) << name(collective.kind);
    EXPECT_EQ(with.reason, without.reason) << name(collective.kind);
    EXPECT_EQ(with.split, without.split) << name(collective.kind);
  };
  for (const CollectiveKind kind : {CollectiveKind::bcast, CollectiveKind::reduce, CollectiveKind::allreduce})
    for (const std::uint64_t bytes : {8u, 1u << 20}) {
      same(blocks(1, 8), request(kind, bytes));
      Team cores = blocks(4, 4);
      cores.progress_cores = 1;
      same(cores, request(kind, bytes));
      Collective other = request(kind, bytes);
      other.split = 1;
      same(blocks(4, 4), other);
      other = request(kind, bytes);
      other.reproducible = true;
      if (computes(kind)) same(blocks(4, 4), other);
      other = request(kind, bytes);
      other.element_bytes = 4;
      other.commutative = false;
      if (computes(kind)) same(blocks(4, 4), other);
    }
  same(blocks(4, 4), request(CollectiveKind::alltoall, 1 << 10));
}

}  // namespace
}  // namespace penstock
