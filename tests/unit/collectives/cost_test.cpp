// The contract of the rows' costs: each agrees with the simulation of the plans that the row makes. And what is chosen
// by them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/cost/costs.hpp"
#include "collectives/parts/levels.hpp"
#include "cost_model/alike_nodes.hpp"
#include "penstock/choice_by_cost.hpp"
#include "penstock/collective.hpp"
#include "penstock/cost_model.hpp"
#include "takes_all.hpp"

namespace penstock {
namespace {

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

struct Case {
  std::string name;
  Team team;
  Machine::Node node{};
};

std::vector<Case> cases() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, Team team, const Machine::Node& node = {}) {
    cases.push_back({name, std::move(team), node});
  };
  for (const int nodes : {2, 3, 5, 8, 24}) add(std::to_string(nodes) + " x 1", blocks(nodes, 1));
  add("1 x 4", blocks(1, 4));
  add("1 x 24", blocks(1, 24));
  add("2 x 2", blocks(2, 2));
  add("4 x 4", blocks(4, 4));
  add("6 x 4", blocks(6, 4));
  add("5 x 3 in turns", in_turns(5, 3));
  add("unequal", {.node_of_rank = {0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 4, 4}});
  Team copied_twice = blocks(4, 4);
  copied_twice.single_copy = false;
  add("4 x 4 without single copies", copied_twice);
  Team domains = blocks(4, 4);
  for (int rank = 0; rank < domains.size(); ++rank) domains.domain_of_rank.push_back(rank / 2);
  add("4 x 4 in domains, small caches", domains, {.cache_bytes = 32 << 10});
  add("4 x 4 on 2 cores", blocks(4, 4), {.cores = 2});
  add("64 x 1", blocks(64, 1));
  add("20 x 6", blocks(20, 6));
  add("256 x 1", blocks(256, 1));
  add("1024 x 1", blocks(1024, 1));
  add("32 x 32", blocks(32, 32));
  if (!takes_all()) return cases;
  for (const auto& [nodes, ranks] : {std::pair{7, 1}, {16, 1}, {33, 1}, {100, 1}, {1000, 1}})
    add(std::to_string(nodes) + " x 1", blocks(nodes, ranks));
  for (const auto& [nodes, ranks] : {std::pair{1, 16}, {2, 16}, {5, 16}, {16, 4}, {64, 4}, {33, 3}, {100, 2}})
    add(std::to_string(nodes) + " x " + std::to_string(ranks), blocks(nodes, ranks));
  add("48 x 4 in turns", in_turns(48, 4));
  return cases;
}

std::size_t most_steps(const Algorithm& row, Team team, const Collective& collective) {
  std::size_t most = 0;
  for (const std::int32_t rank : {0, 1, team.size() / 2, team.size() - 1}) {
    team.rank = rank;
    most = std::max(most, row.plan(team, collective).steps.size());
  }
  return most;
}

// The contract: each cost that a row gives agrees with the simulation of all its plans within a tenth.
TEST(Costs, AgreeWithTheSimulationOfTheirPlans) {
  const std::vector<std::string> networks =
      takes_all()
          ? std::vector<std::string>{"tcp-1g", "tcp-10g", "tcp-25g", "rdma-100g", "rdma-200g", "slingshot", "omni-path"}
          : std::vector<std::string>{"tcp-1g", "slingshot"};
  const std::vector<std::uint64_t> lengths =
      takes_all() ? std::vector<std::uint64_t>{8, 1024, 16384, 65536, 200'000, 1 << 20, 4 << 20, 16 << 20}
                  : std::vector<std::uint64_t>{8, 16384, 200'000, 1 << 20};
  std::map<std::string, int> points;
  for (const Case& each : cases())
    for (const std::string& network : networks)
      for (const std::uint64_t bytes : lengths) {
        const auto size = static_cast<std::uint64_t>(each.team.size());
        if (bytes * size > (takes_all() ? 64u << 20 : 8u << 20)) continue;
        Machine machine = machine_with(network);
        machine.node = each.node;
        for (const Algorithm& row : algorithms()) {
          Collective collective = request(row.kind, row.kind == CollectiveKind::barrier ? 0 : bytes, row.name);
          if (row.kind == CollectiveKind::reduce_scatter) collective.receive.counts.assign(size, bytes / 4);
          const bool has_other_counts = has_counts(row.kind) && row.kind != CollectiveKind::reduce_scatter;
          if (has_other_counts || is_neighborhood(row.kind) || !row.fits(each.team, collective)) continue;
          // The simulation is what takes time and memory.
          if (most_steps(row, each.team, collective) * size > (takes_all() ? 500'000u : 100'000u)) continue;
          const std::optional<double> cost = row.seconds(each.team, collective, machine);
          if (!cost) continue;
          const std::string what = std::string(name(row.kind)) + "/" + std::string(row.name);
          const double seconds = simulated(each.team, collective, machine);
          EXPECT_LE(std::abs(*cost / seconds - 1), 0.1)
              << what << ", " << bytes << " bytes, " << network << ", nodes " << each.name << ": " << *cost * 1e6
              << " us, simulated " << seconds * 1e6;
          ++points[what];
        }
      }
  for (const Algorithm& row : algorithms())
    if ((!has_counts(row.kind) || row.kind == CollectiveKind::reduce_scatter) && !is_neighborhood(row.kind)) {
      const std::string what = std::string(name(row.kind)) + "/" + std::string(row.name);
      EXPECT_GE(points[what], 3) << what << " has no cost";
    }
  for (const char* row :
       {"bcast/leader_chain", "reduce/leader_rabenseifner", "allreduce/leader_ring", "allreduce/hierarchical",
        "allgather/ring", "alltoall/pairwise", "alltoall/hierarchical", "reduce_scatter_block/hierarchical",
        "reduce_scatter/ring", "gather/binomial", "scatter/linear", "scan/doubling", "barrier/dissemination"})
    EXPECT_GE(points[row], 10) << row;
}

// Too many steps to simulate all ranks for a choice: what nodes that are alike do stands for them.
TEST(Costs, OfSumsAmongManyNodesAgreeWithTheSimulation) {
  int points = 0;
  for (const auto& [network, team] : {std::pair{"slingshot", blocks(128, 2)},
                                      {"tcp-10g", blocks(64, 4)},
                                      {"omni-path", blocks(32, 8)},
                                      {"omni-path", blocks(4, 4)},
                                      {"omni-path", blocks(28, 8)},
                                      {"slingshot", blocks(100, 2)},
                                      {"rdma-100g", blocks(24, 16)}})
    for (const std::uint64_t bytes : {32u << 10, 64u << 10, 128u << 10, 1u << 20, 4u << 20})
      for (const Algorithm& row : algorithms()) {
        if (row.kind != CollectiveKind::allreduce ||
            !(row.name.starts_with("multi_leader_") || row.name == "leader_rabenseifner"))
          continue;
        const Machine machine = machine_with(network);
        const Collective collective = request(row.kind, bytes, row.name);
        const std::optional<double> cost = row.seconds(team, collective, machine);
        if (!cost) continue;
        EXPECT_NEAR(*cost / simulated(team, collective, machine), 1, 0.1)
            << row.name << ", " << bytes << " bytes, " << network << ", " << team.size() << " ranks";
        ++points;
      }
  EXPECT_GE(points, 100);
}

TEST(Costs, AreOfPartsOfAnyLengths) {
  const Team team = blocks(4, 2);
  for (const Algorithm& row : algorithms()) {
    Collective collective = request(row.kind, 0, row.name);
    collective.receive.counts = {100'000, 0, 3, 50'000, 7, 0, 0, 90'000};
    if (row.kind != CollectiveKind::reduce_scatter || !row.fits(team, collective)) continue;
    const Machine machine = machine_with("tcp-10g");
    const std::optional<double> cost = row.seconds(team, collective, machine);
    ASSERT_TRUE(cost.has_value()) << row.name;
    EXPECT_NEAR(*cost, simulated(team, collective, machine), *cost / 10) << row.name;
  }
}

// Nodes of one size have different trees. What few ranks do in few steps is simulated.
TEST(Costs, AreNoneOfLongDataAlongDomains) {
  Team team = blocks(4, 4);
  for (int rank = 0; rank < team.size(); ++rank) team.domain_of_rank.push_back(rank / 2);
  for (const Algorithm& row : algorithms())
    if (row.name == "hierarchical" && (row.kind == CollectiveKind::bcast || row.kind == CollectiveKind::allreduce))
      for (const std::uint64_t bytes : {8u, 4u << 20}) {
        const Collective collective = request(row.kind, bytes, row.name);
        EXPECT_EQ(row.seconds(team, collective, machine_with("rdma-100g")).has_value(), bytes == 8) << bytes;
      }
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

// What a choice leaves out early does not change it.
TEST(Costs, UpToALimitAreTheSameOrNone) {
  for (const Team& team : {blocks(2, 1), blocks(6, 3), in_turns(5, 3), blocks(24, 1)})
    for (const std::string network : {"tcp-10g", "slingshot"})
      for (const std::uint64_t bytes : {8u, 16384u, 1u << 20})
        for (const Algorithm& row : algorithms()) {
          const Collective collective = request(row.kind, row.kind == CollectiveKind::barrier ? 0 : bytes, row.name);
          if (has_counts(row.kind) || is_neighborhood(row.kind) || !row.fits(team, collective)) continue;
          const Machine machine = machine_with(network);
          const std::optional<double> all = row.seconds(team, collective, machine);
          if (!all) continue;
          const std::string what = std::string(name(row.kind)) + "/" + std::string(row.name);
          for (const double factor : {1.0, 1.5})
            EXPECT_EQ(row.seconds_up_to(team, collective, machine, factor * *all), all) << what;
          const std::optional<double> less = row.seconds_up_to(team, collective, machine, 0.7 * *all);
          EXPECT_TRUE(!less || *less == *all) << what;
        }
}

const Team kUnequal{.node_of_rank = {0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 4, 4}};

TEST(ChoiceByCost, IsThatOfAllCostsOrCloseToIt) {
  const auto is_candidate = [](const Algorithm& row) {
    if (row.kind == CollectiveKind::reduce_scatter_block) return row.name != "pairwise";
    return row.kind == CollectiveKind::allgather || row.kind == CollectiveKind::alltoall ||
           row.name == "hierarchical" || row.name == "node_shared" || row.name.starts_with("multi_leader") ||
           row.name.starts_with("leader_");
  };
  for (const Team& given :
       {blocks(2, 1), blocks(2, 2), blocks(4, 4), in_turns(5, 3), kUnequal, blocks(12, 1), blocks(16, 4)})
    for (const std::string network : {"tcp-1g", "tcp-25g", "rdma-100g", "omni-path"})
      for (const CollectiveKind kind :
           {CollectiveKind::bcast, CollectiveKind::reduce, CollectiveKind::allreduce, CollectiveKind::allgather,
            CollectiveKind::alltoall, CollectiveKind::reduce_scatter_block})
        for (const std::uint64_t bytes : {8u, 1024u, 16384u, 65536u, 1u << 20}) {
          Team team = given;
          const Machine machine = machine_with(network);
          const Collective collective = request(kind, bytes);
          const Algorithm* best = choose(team, collective).algorithm;
          const std::optional<double> by_thresholds = best->seconds(team, collective, machine);
          if (!by_thresholds) continue;
          double least = 0.9 * *by_thresholds;
          for (const Algorithm& row : algorithms()) {
            if (row.kind != kind || !is_candidate(row) || !row.fits(team, collective)) continue;
            const std::optional<double> seconds = row.seconds(team, collective, machine);
            if (!seconds || *seconds >= least) continue;
            least = *seconds;
            best = &row;
          }
          team.by_cost = std::make_shared<const ChoiceByCost>(team, machine);
          const Choice choice = choose(team, collective);
          const Algorithm* chosen = choice.algorithm;
          const std::string what = std::string(name(kind)) + " " + std::to_string(bytes) + " bytes, " + network + ", " +
                                   std::to_string(team.size()) + " ranks: " + std::string(chosen->name) + ", not " +
                                   std::string(best->name);
          if (chosen == best && choice.segment_bytes == 0) continue;
          const double most = given.node_of_rank == kUnequal.node_of_rank ? 1.5 : 1.25;
          EXPECT_LE(simulated(team, collective, machine),
                    most * simulated(team, request(kind, bytes, best->name), machine))
              << what;
        }
}

TEST(ChoiceByCost, IsNoWorseThanThresholdsAndCloseToTheBest) {
  double gained = 0;
  for (const std::string network : {"tcp-1g", "rdma-100g"})
    for (const CollectiveKind kind :
         {CollectiveKind::bcast, CollectiveKind::reduce, CollectiveKind::allreduce, CollectiveKind::allgather,
          CollectiveKind::alltoall, CollectiveKind::reduce_scatter_block})
      for (const std::uint64_t bytes : {8u, 16384u, 1u << 20})
        for (Team team : {blocks(8, 4), blocks(12, 1)}) {
          const Machine machine = machine_with(network);
          const double by_thresholds = simulated(team, request(kind, bytes), machine);
          double best = by_thresholds;
          for (const Algorithm& row : algorithms())
            if (row.kind == kind &&
                (row.name.starts_with("leader_") || row.name == "hierarchical" || row.name == "recursive_halving") &&
                row.fits(team, request(kind, bytes)))
              best = std::min(best, simulated(team, request(kind, bytes, row.name), machine));
          team.by_cost = std::make_shared<const ChoiceByCost>(team, machine);
          const double by_cost = simulated(team, request(kind, bytes), machine);
          const std::string what = std::string(name(kind)) + " " + std::to_string(bytes) + " bytes, " + network + ", " +
                                   std::to_string(team.size()) + " ranks";
          EXPECT_LE(by_cost, 1.1 * by_thresholds) << what;
          EXPECT_LE(by_cost, 1.5 * best) << what;
          gained = std::max(gained, by_thresholds / by_cost);
        }
  EXPECT_GT(gained, 1.5);
}

// Too many steps to simulate them all. Thresholds take one leader per node: doubling, which sends all data in each
// round, or the ring.
TEST(ChoiceByCost, OfSumsBetweenManyNodesDividesThemAmongLeaders) {
  struct Point {
    const char* network;
    Team team;
    std::uint64_t bytes;
    const char* by_thresholds;
    const char* by_cost;
  };
  for (const Point& point :
       {Point{"slingshot", blocks(128, 2), 64 << 10, "leader_doubling", "multi_leader_rabenseifner"},
        Point{"tcp-10g", blocks(128, 2), 256 << 10, "leader_doubling", "multi_leader_pipeline"},
        Point{"omni-path", blocks(32, 8), 16 << 10, "leader_doubling", "multi_leader_doubling"},
        Point{"omni-path", blocks(32, 48), 1 << 20, "leader_ring", "multi_leader_rabenseifner"}}) {
    Team team = point.team;
    const std::string what = std::string(point.network) + ", " + std::to_string(team.size()) + " ranks";
    const Machine machine = machine_with(point.network);
    const Collective collective = request(CollectiveKind::allreduce, point.bytes);
    const Algorithm* by_thresholds = choose(team, collective).algorithm;
    EXPECT_EQ(by_thresholds->name, point.by_thresholds) << what;
    const double slower = simulated(team, collective, machine);
    EXPECT_NEAR(by_thresholds->seconds(team, collective, machine).value_or(0) / slower, 1, 0.1) << what;
    team.by_cost = std::make_shared<const ChoiceByCost>(team, machine);
    const Algorithm* chosen = choose(team, collective).algorithm;
    const double faster = simulated(team, request(collective.kind, point.bytes, chosen->name), machine);
    EXPECT_LE(faster, 1.05 * simulated(team, request(collective.kind, point.bytes, point.by_cost), machine))
        << what << ": " << chosen->name;
    EXPECT_LT(1.5 * faster, slower) << what;
    EXPECT_NEAR(chosen->seconds(team, collective, machine).value_or(0) / faster, 1, 0.1) << what;
  }
}

// Several leaders have too many steps for other lengths. The plans of one node suffice.
TEST(ChoiceByCost, KnowsLongSumsOnLargeNodes) {
  Team team = blocks(32, 48);
  const Machine machine = machine_with("omni-path");
  const Collective collective = request(CollectiveKind::allreduce, 16 << 20);
  EXPECT_EQ(choose(team, collective).algorithm->name, "leader_ring");
  for (const Algorithm& row : algorithms())
    if (row.kind == CollectiveKind::allreduce && row.name.starts_with("multi_leader") &&
        row.name != "multi_leader_multiplying") {  // for short data
      EXPECT_TRUE(row.seconds(team, collective, machine).has_value()) << row.name;
    }
  team.by_cost = std::make_shared<const ChoiceByCost>(team, machine);
  EXPECT_TRUE(choose(team, collective).algorithm->name.starts_with("multi_leader"));
}

// Their number is no power of two: a pair of nodes, and one without a pair, stand for all.
TEST(ChoiceByCost, OfSumsAmongAnyNumberOfNodesDividesThemAmongLeaders) {
  Team team = blocks(24, 48);
  const Machine machine = machine_with("omni-path");
  const Collective collective = request(CollectiveKind::allreduce, 64 << 10);
  EXPECT_EQ(choose(team, collective).algorithm->name, "leader_doubling");
  const double slower = simulated(team, collective, machine);
  team.by_cost = std::make_shared<const ChoiceByCost>(team, machine);
  const Algorithm* chosen = choose(team, collective).algorithm;
  const double faster = simulated(team, request(collective.kind, 64 << 10, chosen->name), machine);
  EXPECT_LT(2 * faster, slower) << chosen->name;
  EXPECT_LE(faster, 1.2 * simulated(team, request(collective.kind, 64 << 10, "multi_leader_rabenseifner"), machine))
      << chosen->name;
}

// Where choices do without plans, estimates are close to the simulation.
TEST(ChoiceByCost, EstimatesSumsAmongManyRanks) {
  int points = 0;
  for (const auto& [network, team] : {std::pair{"slingshot", blocks(128, 2)},
                                      {"tcp-10g", blocks(64, 4)},
                                      {"omni-path", blocks(32, 8)},
                                      {"omni-path", blocks(28, 8)},
                                      {"slingshot", blocks(100, 2)},
                                      {"tcp-1g", blocks(24, 16)},
                                      {"rdma-200g", blocks(100, 1)}})
    for (const std::uint64_t bytes : {32u << 10, 128u << 10, 1u << 20, 4u << 20})
      for (const Algorithm& row : algorithms()) {
        const Machine machine = machine_with(network);
        const Collective collective = request(row.kind, bytes, row.name);
        if (row.kind != CollectiveKind::allreduce || !row.fits(team, collective)) continue;
        const std::optional<double> estimate = collectives::cost::estimated_seconds(
            {row.name, team, collective, machine}, collectives::cost::node_sizes(team));
        if (!estimate) continue;
        EXPECT_NEAR(*estimate / simulated(team, collective, machine), 1, 0.33)
            << row.name << ", " << bytes << " bytes, " << network << ", " << team.size() << " ranks";
        ++points;
      }
  EXPECT_GE(points, 120);
}

TEST(ChoiceByCost, EstimatesExchangesOfBlocks) {
  std::map<std::string, int> points;
  for (const auto& [nodes, ranks] :
       {std::pair{2, 1}, {3, 1}, {12, 1}, {16, 1}, {2, 2}, {4, 4}, {6, 3}, {8, 4}, {16, 4}})
    for (const std::string network : {"tcp-1g", "tcp-25g", "slingshot", "omni-path"})
      for (const std::uint64_t bytes : {8u, 1024u, 4096u, 65536u}) {
        const Team team = blocks(nodes, ranks);
        const Machine machine = machine_with(network);
        if (team.size() > 24 && bytes > 4096) continue;
        for (const Algorithm& row : algorithms()) {
          const Collective collective = request(row.kind, bytes, row.name);
          if ((row.kind != CollectiveKind::allgather && row.kind != CollectiveKind::alltoall &&
               row.kind != CollectiveKind::reduce_scatter_block) ||
              !row.fits(team, collective))
            continue;
          const std::optional<double> estimate = collectives::cost::estimated_seconds(
              {row.name, team, collective, machine}, collectives::cost::node_sizes(team));
          if (!estimate) continue;
          const std::string what = std::string(name(row.kind)) + "/" + std::string(row.name);
          EXPECT_NEAR(*estimate / simulated(team, collective, machine), 1, 0.4)
              << what << ", " << bytes << " bytes, " << network << ", " << nodes << " x " << ranks;
          ++points[what];
        }
      }
  EXPECT_EQ(points.size(), 12u);
}

TEST(ChoiceByCost, EstimatesTreesAndTasks) {
  std::map<std::string, int> points;
  double sum = 0;
  int count = 0;
  for (const auto& [nodes, ranks] :
       {std::pair{2, 16}, {3, 1}, {2, 2}, {4, 4}, {6, 3}, {8, 4}, {12, 1}, {16, 1}, {16, 4}, {20, 2}})
    for (const std::string network : {"tcp-1g", "tcp-25g", "slingshot", "omni-path"})
      for (const std::uint64_t bytes : {8u, 4096u, 64u << 10, 256u << 10, 1u << 20, 16u << 20}) {
        if (bytes > 1u << 20 && nodes * ranks > 16) continue;  // the simulation takes long
        const Team team = blocks(nodes, ranks);
        const Machine machine = machine_with(network);
        for (const Algorithm& row : algorithms()) {
          const Collective collective = request(row.kind, bytes, row.name);
          const bool is_of_sums = row.kind == CollectiveKind::reduce || row.kind == CollectiveKind::allreduce;
          if ((row.kind != CollectiveKind::bcast && !is_of_sums) || !row.fits(team, collective)) continue;
          // Their parts would be empty, or of different lengths.
          const bool has_parts = row.name.find("scatter") != row.name.npos || row.name.starts_with("multi_leader") ||
                                 row.name.find("rabenseifner") != row.name.npos || row.name == "ring";
          if (bytes < 1024 && has_parts) continue;
          // Of long data, which other rows move in a part of the time, up to 1.6 times too long.
          if (bytes > 1u << 20 && row.name.find("doubling") != row.name.npos) continue;
          const std::optional<double> estimate = collectives::cost::estimated_seconds(
              {row.name, team, collective, machine}, collectives::cost::node_sizes(team));
          if (!estimate) continue;
          const std::string what = std::string(name(row.kind)) + "/" + std::string(row.name);
          const double ratio = *estimate / simulated(team, collective, machine);
          EXPECT_NEAR(ratio, 1, 0.45) << what << ", " << bytes << " bytes, " << network << ", " << nodes << " x "
                                      << ranks;
          sum += std::abs(ratio - 1);
          ++count;
          ++points[what];
        }
      }
  EXPECT_LE(sum / count, 0.05);
  EXPECT_EQ(points.size(), 37u);
  for (const char* row : {"bcast/leader_two_tree", "bcast/leader_scatter_doubling", "reduce/leader_chain",
                          "reduce/leader_rabenseifner", "reduce/node_shared", "allreduce/leader_ring"})
    EXPECT_GE(points[row], 50) << row;
}

// Segments of the lengths among which a choice is made.
TEST(ChoiceByCost, EstimatesShortSegments) {
  for (const auto& [nodes, ranks] : {std::pair{3, 1}, {2, 2}, {4, 4}, {8, 4}, {16, 2}})
    for (const std::string network : {"tcp-10g", "rdma-100g", "slingshot", "omni-path"})
      for (const std::uint64_t bytes : {16u << 10, 64u << 10, 256u << 10, 1u << 20})
        for (const std::uint64_t segment_bytes : {30u << 10, 15u << 10, 7680u, 3840u})
          for (const Algorithm& row : algorithms()) {
            if (row.kind != CollectiveKind::bcast || collectives::levels_row(row.name) == nullptr) continue;
            const Team team = blocks(nodes, ranks);
            const Machine machine = machine_with(network);
            Collective collective = request(row.kind, bytes, row.name);
            collective.segment_bytes = segment_bytes;
            if (!row.fits(team, collective)) continue;
            const std::optional<double> estimate = collectives::cost::estimated_seconds(
                {row.name, team, collective, machine}, collectives::cost::node_sizes(team));
            ASSERT_TRUE(estimate) << row.name;
            EXPECT_NEAR(*estimate / simulated(team, collective, machine), 1, 0.45)
                << row.name << ", " << bytes << " bytes in segments of " << segment_bytes << ", " << network << ", "
                << nodes << " x " << ranks;
          }
}

// Of pipelines that pass many leaders, the length of the segments matters on fast links.
TEST(ChoiceByCost, SegmentsOfBroadcastsAreCloseToTheBest) {
  double gained = 0;
  for (const std::string network : {"tcp-25g", "rdma-100g", "rdma-200g", "slingshot"})
    for (Team team : {blocks(16, 1), blocks(16, 4)})
      for (const std::uint64_t bytes : {256u << 10, 1u << 20, 4u << 20}) {
        const Machine machine = machine_with(network);
        team.by_cost = std::make_shared<const ChoiceByCost>(team, machine);
        Collective collective = request(CollectiveKind::bcast, bytes);
        const Choice choice = choose(team, collective);
        collective.algorithm = choice.algorithm->name;
        const double by_default = simulated(team, collective, machine);
        double best = by_default;
        for (std::uint64_t segment_bytes = 480 << 10; segment_bytes >= 3 << 10; segment_bytes /= 2) {
          collective.segment_bytes = segment_bytes;
          best = std::min(best, simulated(team, collective, machine));
        }
        collective.segment_bytes = choice.segment_bytes;
        const double chosen = simulated(team, collective, machine);
        EXPECT_LE(chosen, 1.15 * best) << network << ", " << team.size() << " ranks, " << bytes << " bytes, "
                                       << collective.algorithm << " in segments of " << choice.segment_bytes;
        gained = std::max(gained, by_default / chosen);
      }
  EXPECT_GT(gained, 1.2);
}

// On networks of all classes, short broadcasts pass the leaders faster than along a binomial tree, and those of medium
// length in shorter segments.
TEST(ChoiceByCost, GainsForBroadcastsThatAreShortOrOfMediumLength) {
  for (const std::string network : {"tcp-10g", "rdma-100g", "slingshot", "omni-path"})
    for (const Team& given : {blocks(32, 8), blocks(128, 2)}) {
      Team team = given;
      const Machine machine = machine_with(network);
      team.by_cost = std::make_shared<const ChoiceByCost>(team, machine);
      EXPECT_EQ(choose(team, request(CollectiveKind::bcast, 8)).algorithm->name, "leader_postal") << network;
      EXPECT_LT(1.3 * simulated(team, request(CollectiveKind::bcast, 8), machine),
                simulated(team, request(CollectiveKind::bcast, 8, "hierarchical"), machine))
          << network;
      const Collective medium = request(CollectiveKind::bcast, 32 << 10);
      EXPECT_NE(choose(team, medium).segment_bytes, 0u) << network;
      for (const Algorithm& row : algorithms())
        if (row.kind == medium.kind && row.name.find("leader_") == 0)
          EXPECT_LT(simulated(team, medium, machine),
                    simulated(team, request(medium.kind, 32 << 10, row.name), machine))
              << network << ", " << row.name;
    }
}

// Several short messages of a leader are on their way at once, among any number of nodes.
TEST(ChoiceByCost, GainsForShortSumsAndBarriers) {
  for (const std::string network : {"tcp-10g", "rdma-100g", "slingshot", "omni-path"})
    for (const Team& given : {blocks(32, 8), blocks(100, 2), blocks(128, 1)}) {
      Team team = given;
      const Machine machine = machine_with(network);
      const std::string what = network + ", " + std::to_string(team.size()) + " ranks";
      const double sums = simulated(team, request(CollectiveKind::allreduce, 8), machine);
      const double barriers = simulated(team, {}, machine);
      team.by_cost = std::make_shared<const ChoiceByCost>(team, machine);
      const Choice choice = choose(team, request(CollectiveKind::allreduce, 8));
      EXPECT_EQ(choice.algorithm->name, "leader_multiplying") << what;
      EXPECT_GT(choice.radix, 2) << what;
      EXPECT_LT(1.2 * simulated(team, request(CollectiveKind::allreduce, 8), machine), sums) << what;
      EXPECT_GT(choose(team, {}).radix, 2) << what;
      EXPECT_LT(1.2 * simulated(team, {}, machine), barriers) << what;
      EXPECT_LT(choose(team, request(CollectiveKind::allreduce, 16 << 20, "leader_multiplying")).radix, choice.radix)
          << what;
      Collective asked = request(CollectiveKind::allreduce, 8, "leader_multiplying");
      asked.radix = 3;
      EXPECT_EQ(choose(team, asked).radix, 3) << what;
    }
}

// What a radix costs, of any number of nodes: exact in cost, close in estimates.
TEST(Costs, OfMultiplyingAgreeWithTheSimulation) {
  int exact = 0;
  for (const auto& [nodes, ranks] : {std::pair{3, 1}, {7, 2}, {16, 2}, {25, 1}, {31, 2}, {64, 1}, {100, 2}})
    for (const std::string network : {"tcp-1g", "rdma-100g", "omni-path"})
      for (const std::uint64_t bytes : {8u, 1024u, 16384u})
        for (const int radix : {2, 3, 5, 8})
          for (const std::string_view row : {"leader_multiplying", "multi_leader_multiplying"}) {
            const Team team = blocks(nodes, ranks);
            const Machine machine = machine_with(network);
            Collective collective = request(CollectiveKind::allreduce, bytes, row);
            collective.radix = radix;
            const std::string what = std::string(row) + ", radix " + std::to_string(radix) + ", " +
                                     std::to_string(bytes) + " bytes, " + network + ", " + std::to_string(nodes) +
                                     " x " + std::to_string(ranks);
            const collectives::cost::Call call{row, team, collective, machine};
            const double seconds = simulated(team, collective, machine);
            const std::optional<double> estimate =
                collectives::cost::estimated_seconds(call, collectives::cost::node_sizes(team));
            ASSERT_TRUE(estimate) << what;
            EXPECT_NEAR(*estimate / seconds, 1, 0.4) << what;
            if (const std::optional<double> cost = collectives::cost::leaders_in_rounds<double>(call)) {
              EXPECT_NEAR(*cost / seconds, 1, 0.1) << what;
              ++exact;
            }
          }
  EXPECT_GE(exact, 60);
}

// Teams of up to 16 ranks, whose costs take milliseconds.
TEST(ChoiceByCost, AmongFewRanksIsCloseToTheBest) {
  double sum = 0;
  int points = 0;
  for (const auto& [nodes, ranks] : {std::pair{2, 1}, {3, 1}, {4, 1}, {8, 1}, {2, 2}, {4, 2}, {3, 3}, {4, 4}, {2, 8}})
    for (const std::string network : {"tcp-10g", "rdma-100g", "slingshot"})
      for (const std::uint64_t bytes : {8u, 4096u, 65536u, 1u << 20, 4u << 20})
        for (const CollectiveKind kind :
             {CollectiveKind::bcast, CollectiveKind::reduce, CollectiveKind::allreduce, CollectiveKind::allgather,
              CollectiveKind::alltoall, CollectiveKind::reduce_scatter_block}) {
          if (!is_rooted(kind) && kind != CollectiveKind::allreduce && bytes > 65536) continue;
          Team team = blocks(nodes, ranks);
          const Machine machine = machine_with(network);
          double best = simulated(team, request(kind, bytes), machine);
          for (const Algorithm& row : algorithms())
            if (row.kind == kind &&
                (row.name.starts_with("leader_") || row.name.starts_with("multi_leader") ||
                 row.name == "hierarchical" || row.name == "ring" || row.name == "node_shared") &&
                row.fits(team, request(kind, bytes)))
              best = std::min(best, simulated(team, request(kind, bytes, row.name), machine));
          team.by_cost = std::make_shared<const ChoiceByCost>(team, machine);
          const Algorithm* chosen = choose(team, request(kind, bytes)).algorithm;
          const double ratio = simulated(team, request(kind, bytes), machine) / best;
          EXPECT_LE(ratio, 1.35) << name(kind) << ", " << bytes << " bytes, " << network << ", " << nodes << " x "
                                 << ranks << ": " << chosen->name;
          sum += ratio;
          ++points;
        }
  EXPECT_LE(sum / points, 1.02);
}

/// All ranks of `sizes` nodes, which follow each other or take turns; in domains of so many ranks, if not 0.
Team of_sizes(const std::vector<int>& sizes, bool take_turns = false, int domain = 0) {
  Team team;
  for (int turn = 0; turn < (take_turns ? *std::ranges::max_element(sizes) : 1); ++turn)
    for (std::size_t node = 0; node < sizes.size(); ++node)
      for (int i = 0; i < (take_turns ? static_cast<int>(turn < sizes[node]) : sizes[node]); ++i)
        team.node_of_rank.push_back(static_cast<std::int32_t>(node));
  std::vector<int> seen(sizes.size());
  if (domain > 0)
    for (const std::int32_t node : team.node_of_rank)
      team.domain_of_rank.push_back(seen[static_cast<std::size_t>(node)]++ / domain);
  return team;
}

// Nodes of different sizes, ranks in turns, and domains: the largest node stands for all.
TEST(ChoiceByCost, OnUnequalNodesIsCloseToTheBest) {
  Machine slow = machine_with("rdma-200g");
  slow.node.copy_seconds_per_byte *= 2.5;
  slow.node.far_copy_seconds_per_byte *= 3;
  slow.node.combine_seconds_per_byte *= 1.6;
  slow.node.flag_seconds *= 2;
  double sum = 0;
  double by_thresholds = 0;
  int points = 0;
  for (const Team& given :
       {of_sizes({4, 4, 3}), of_sizes({16, 16, 8}), of_sizes({6, 6, 6, 5}), of_sizes({4, 2, 1}),
        of_sizes({1, 1, 1, 1, 1, 1, 1, 2}), of_sizes({3, 3, 3, 3, 2}, true), of_sizes({4, 4, 4, 4}, true),
        of_sizes({4, 4, 4, 4}, false, 2), of_sizes({8, 8, 6}, false, 4)})
    for (const Machine& machine : {machine_with("tcp-10g"), machine_with("omni-path"), slow})
      for (const std::uint64_t bytes : {64u, 4096u, 65536u, 512u << 10})
        for (const CollectiveKind kind :
             {CollectiveKind::bcast, CollectiveKind::reduce, CollectiveKind::allreduce, CollectiveKind::allgather,
              CollectiveKind::alltoall, CollectiveKind::reduce_scatter_block}) {
          if (!is_rooted(kind) && kind != CollectiveKind::allreduce && bytes > 65536) continue;
          Team team = given;
          const double before = simulated(team, request(kind, bytes), machine);
          double best = before;
          for (const Algorithm& row : algorithms())
            if (row.kind == kind && row.fits(team, request(kind, bytes)) && !row.reproducible && !row.keeps_order)
              best = std::min(best, simulated(team, request(kind, bytes, row.name), machine));
          team.by_cost = std::make_shared<const ChoiceByCost>(team, machine);
          const std::uint64_t steps = cost_model::simulated_steps();
          const Algorithm* chosen = choose(team, request(kind, bytes)).algorithm;
          EXPECT_EQ(cost_model::simulated_steps(), steps);
          const double ratio = simulated(team, request(kind, bytes, chosen->name), machine) / best;
          EXPECT_LE(ratio, 1.75) << name(kind) << ", " << bytes << " bytes, " << team.size()
                                 << " ranks: " << chosen->name;
          sum += ratio;
          by_thresholds += before / best;
          ++points;
        }
  EXPECT_LE(sum / points, 1.04);
  EXPECT_GE(by_thresholds / points, 1.1);
}

// All ranks know the counts of these. Rows of the operation without counts have the estimates.
TEST(ChoiceByCost, OfBlocksWithCountsIsThatOfBlocksOfTheirMean) {
  for (const char* network : {"tcp-1g", "tcp-25g", "slingshot"})
    for (Team team : {blocks(8, 1), blocks(24, 1), blocks(8, 4), blocks(5, 3)}) {
      const Machine machine = machine_with(network);
      team.by_cost = std::make_shared<const ChoiceByCost>(team, machine);
      const auto size = static_cast<std::size_t>(team.size());
      for (const std::uint64_t bytes : {8u, 1024u, 16u << 10, 256u << 10}) {
        Collective sums{.kind = CollectiveKind::reduce_scatter, .dtype = DType::float32};
        sums.receive.counts.assign(size, bytes / 4);
        const std::string of_sums = std::string(choose(team, sums).algorithm->name);
        EXPECT_EQ(choose(team, sums).algorithm->kind, CollectiveKind::reduce_scatter);
        EXPECT_EQ(of_sums, choose(team, request(CollectiveKind::reduce_scatter_block, bytes)).algorithm->name);

        Collective gathered{.kind = CollectiveKind::allgatherv, .dtype = DType::float32};
        gathered.receive.counts.assign(size, bytes / 4);
        const Algorithm* row = choose(team, gathered).algorithm;
        EXPECT_EQ(row->kind, CollectiveKind::allgatherv);
        double best = std::numeric_limits<double>::infinity();
        for (const char* other : {"ring", "bruck"})
          best = std::min(best, simulated(team, request(CollectiveKind::allgather, bytes, other), machine));
        EXPECT_LE(simulated(team, request(CollectiveKind::allgather, bytes, row->name), machine), 1.2 * best)
            << network << ", " << team.size() << " ranks, " << bytes << " bytes: " << row->name;

        std::ranges::fill(sums.receive.counts, 0);
        sums.receive.counts[1] = size * bytes / 4;
        EXPECT_EQ(team.by_cost->find(sums), nullptr) << "one rank has all: thresholds decide";
      }
    }
}

// What a first choice takes, counted: it plans for no rank, and follows no message.
TEST(ChoiceByCost, OfTreesAndSumsSimulatesNoSteps) {
  for (const auto& [nodes, ranks] : {std::pair{2, 1},
                                     {2, 8},
                                     {4, 4},
                                     {8, 2},
                                     {8, 4},
                                     {24, 1},
                                     {32, 8},
                                     {32, 48},
                                     {24, 48},
                                     {128, 32},
                                     {128, 128},
                                     {1000, 16},
                                     {1024, 16},
                                     {16384, 1}})
    for (const std::uint64_t bytes : {8u, 1024u, 64u << 10, 1u << 20, 16u << 20})
      for (const CollectiveKind kind : {CollectiveKind::bcast, CollectiveKind::reduce, CollectiveKind::allreduce}) {
        const ChoiceByCost by_cost(blocks(nodes, ranks), machine_with("omni-path"));
        const std::uint64_t before = cost_model::simulated_steps();
        EXPECT_NE(by_cost.find(request(kind, bytes)), nullptr) << nodes << " x " << ranks;
        EXPECT_EQ(cost_model::simulated_steps() - before, 0u)
            << name(kind) << ", " << nodes << " x " << ranks << ", " << bytes << " bytes";
      }
}

TEST(ChoiceByCost, OfBlocksSimulatesNoSteps) {
  for (const auto& [nodes, ranks] :
       {std::pair{2, 1}, {2, 8}, {4, 4}, {8, 2}, {8, 4}, {24, 1}, {32, 8}, {32, 48}, {1000, 16}, {16384, 1}})
    for (const std::uint64_t bytes : {8u, 4096u, 64u << 10, 16u << 20})
      for (const CollectiveKind kind :
           {CollectiveKind::allgather, CollectiveKind::alltoall, CollectiveKind::reduce_scatter_block}) {
        const ChoiceByCost by_cost(blocks(nodes, ranks), machine_with("omni-path"));
        const std::uint64_t before = cost_model::simulated_steps();
        EXPECT_NE(by_cost.find(request(kind, bytes)), nullptr) << nodes << " x " << ranks;
        EXPECT_EQ(cost_model::simulated_steps() - before, 0u)
            << name(kind) << ", " << nodes << " x " << ranks << ", " << bytes;
      }
}

// Any number of nodes.
TEST(ChoiceByCost, OfBroadcastsOfMediumLengthIsAsGoodAsScatteringThem) {
  for (const int nodes : {128, 100}) {
    Team team = blocks(nodes, 2);
    const Machine machine = machine_with("rdma-100g");
    const Collective collective = request(CollectiveKind::bcast, 64 << 10);
    const double slower = simulated(team, collective, machine);
    team.by_cost = std::make_shared<const ChoiceByCost>(team, machine);
    const double faster = simulated(team, collective, machine);
    EXPECT_LT(1.2 * faster, slower) << nodes;
    EXPECT_LE(faster, simulated(team, request(collective.kind, 64 << 10, "leader_scatter_doubling"), machine)) << nodes;
  }
}

TEST(ChoiceByCost, IsTheSameOnAllRanks) {
  Team team = in_turns(5, 3);
  team.by_cost = std::make_shared<const ChoiceByCost>(team, machine_with("rdma-100g"));
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

// Whatever was asked for before, and on ranks that remember other lengths.
TEST(ChoiceByCost, DoesNotDependOnEarlierCalls) {
  Team team = blocks(6, 3);
  const Machine machine = machine_with("slingshot");
  std::vector<Collective> asked;
  for (const CollectiveKind kind :
       {CollectiveKind::bcast, CollectiveKind::reduce, CollectiveKind::allreduce, CollectiveKind::allgather,
        CollectiveKind::alltoall, CollectiveKind::reduce_scatter_block})
    for (const std::uint64_t bytes : {4u, 8u, 24u, 5000u, 33'000u, 36'000u, 39'000u, 150'000u, 700'000u})
      for (const int root : {0, 4}) {
        asked.push_back(request(kind, bytes));
        if (is_rooted(kind)) asked.back().root = root;
      }
  team.by_cost = std::make_shared<const ChoiceByCost>(team, machine);
  std::vector<std::string> forwards;
  for (const Collective& each : asked) forwards.emplace_back(choose(team, each).reason);
  team.by_cost = std::make_shared<const ChoiceByCost>(team, machine);
  for (std::size_t i = asked.size(); i-- > 0;) EXPECT_EQ(choose(team, asked[i]).reason, forwards[i]) << i;
  for (std::size_t i = 0; i < asked.size(); i += 3) {
    team.by_cost = std::make_shared<const ChoiceByCost>(team, machine);
    team.rank = static_cast<std::int32_t>(i % 18);
    EXPECT_EQ(choose(team, asked[i]).reason, forwards[i]) << i;
  }
}

TEST(ChoiceByCost, RemembersLengthsThatAreAlike) {
  const Team team = blocks(8, 2);
  const ChoiceByCost by_cost(team, machine_with("rdma-100g"));
  const auto find = [&](std::uint64_t bytes, int root = 0) {
    Collective collective = request(CollectiveKind::bcast, bytes);
    collective.root = root;
    return by_cost.find(collective);
  };
  EXPECT_EQ(find(40'000), find(36'864 + 4));
  EXPECT_EQ(find(40'000), find(40'000, 9));
  EXPECT_NE(find(40'000), find(50'000));
  const auto chosen = find(1 << 20);
  ASSERT_NE(chosen, nullptr);
  EXPECT_GE(chosen->candidates.size(), 2u);
  EXPECT_TRUE(std::ranges::is_sorted(chosen->candidates, {}, &ChoiceByCost::Candidate::seconds));
}

TEST(ChoiceByCost, LeavesOneNodeAndOtherRequestsAlone) {
  const auto same = [](Team team, Collective collective) {
    const Choice without = choose(team, collective);
    team.by_cost = std::make_shared<const ChoiceByCost>(team, machine_with("tcp-1g"));
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
  same(blocks(4, 4), request(CollectiveKind::gather, 1 << 10));
}

}  // namespace
}  // namespace penstock
