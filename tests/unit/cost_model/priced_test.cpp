// Each term of simulated_seconds() against its formula.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "penstock/collective.hpp"
#include "penstock/cost_model.hpp"
#include "penstock/error.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kShort = 8;
constexpr std::uint64_t kEager = 4000;
constexpr std::uint64_t kLong = 100'000;

// Unequal primes, so that no term can stand for another.
Machine machine() {
  Machine machine;
  machine.network = {.latency_seconds = 2003e-9,
                     .overhead_seconds = 307e-9,
                     .gap_seconds = 101e-9,
                     .seconds_per_byte = 0.11e-9,
                     .process_seconds_per_byte = 0.11e-9,
                     .eager_bytes = 8 << 10};
  machine.node = {.flag_seconds = 89e-9,
                  .copy_seconds_per_byte = 0.13e-9,
                  .far_copy_seconds_per_byte = 0.29e-9,
                  .remote_read_seconds = 997e-9,
                  .remote_read_seconds_per_byte = 0.17e-9,
                  .combine_seconds_per_byte = 0.19e-9,
                  .task_seconds = 223e-9,
                  .uncached_factor = 1.75,
                  .message_bytes = 8 << 10,
                  .cache_bytes = 1 << 20,
                  .cores = 64};
  return machine;
}

double bytes_of(std::uint64_t bytes) { return static_cast<double>(bytes); }
double on_link(std::uint64_t bytes, const Machine::Network& network) {
  return network.gap_seconds + bytes_of(bytes) * network.seconds_per_byte;
}

/// Plans that the tests write step by step.
class Ranks {
 public:
  explicit Ranks(std::vector<std::int32_t> nodes) : team_{.node_of_rank = std::move(nodes)} {
    for (int rank = 0; rank < team_.size(); ++rank) builders_.emplace_back("test", rank, team_.size());
  }

  Team& team() { return team_; }
  PlanBuilder& of(int rank) { return builders_[static_cast<std::size_t>(rank)]; }
  void message(int from, int to, std::uint64_t bytes) {
    of(from).send({0, bytes, Buffer::input}, to, 0);
    of(to).recv({0, bytes, Buffer::output}, from, 0);
  }
  double seconds(const Machine& given = machine()) {
    std::vector<Plan> plans;
    for (PlanBuilder builder : builders_) plans.push_back(std::move(builder).finish(1 << 24, 1 << 24));
    EXPECT_EQ(verify(plans, team_.node_of_rank), std::vector<std::string>{});
    return simulated_seconds(plans, team_, given);
  }

 private:
  Team team_;
  std::vector<PlanBuilder> builders_;
};

void expect_seconds(double found, double expected) { EXPECT_NEAR(found, expected, expected * 1e-9); }

TEST(SimulatedSeconds, OfNoPlanAreNone) { EXPECT_EQ(Ranks({0}).seconds(), 0); }

TEST(SimulatedSeconds, OfAShortMessageBetweenNodes) {
  const auto& network = machine().network;
  for (const std::uint64_t bytes : {kShort, kEager}) {
    Ranks ranks({0, 1});
    ranks.message(0, 1, bytes);
    expect_seconds(ranks.seconds(), 2 * network.overhead_seconds + network.latency_seconds + on_link(bytes, network));
  }
}

TEST(SimulatedSeconds, OfALongMessageBetweenNodesHaveAHandshake) {
  const auto network = machine().network;
  Ranks ranks({0, 1});
  ranks.message(0, 1, kLong);
  expect_seconds(ranks.seconds(), 2 * network.overhead_seconds + 3 * network.latency_seconds + on_link(kLong, network));
}

TEST(SimulatedSeconds, OfALongMessageToALateReceiver) {
  const auto network = machine().network;
  const auto node = machine().node;
  for (const std::uint64_t bytes : {kEager, kLong}) {
    Ranks ranks({0, 1});
    const StepId late = ranks.of(1).copy({0, 1 << 20, Buffer::input}, {1 << 20, 1 << 20, Buffer::output});
    ranks.of(0).send({0, bytes, Buffer::input}, 1, 0);
    ranks.of(1).recv({0, bytes, Buffer::output}, 0, 0, {late});
    const double after = bytes == kLong ? 2 * network.latency_seconds + on_link(bytes, network) : 0;
    expect_seconds(ranks.seconds(), (1 << 20) * node.copy_seconds_per_byte + network.overhead_seconds + after);
  }
}

// The second message is taken when it is there: until then the receiver's core does other work.
TEST(SimulatedSeconds, OfACoreThatWaitsForALaterMessageInsideItsNode) {
  const auto node = machine().node;
  Ranks ranks({0, 0});
  ranks.team().single_copy = false;
  ranks.of(0).send({0, kLong, Buffer::input}, 1, 0);
  ranks.of(0).reduce({0, 10 * kLong, Buffer::input}, {0, 10 * kLong, Buffer::output});
  ranks.of(0).send({kLong, kLong, Buffer::input}, 1, 1);
  const StepId first = ranks.of(1).recv({0, kLong, Buffer::output}, 0, 0);
  ranks.of(1).recv({kLong, kLong, Buffer::output}, 0, 1);
  ranks.of(1).copy({0, kLong, Buffer::output}, {2 * kLong, kLong, Buffer::output}, {first});
  expect_seconds(ranks.seconds(), node.flag_seconds + 2 * bytes_of(kLong) * node.copy_seconds_per_byte +
                                      bytes_of(10 * kLong) * node.combine_seconds_per_byte);
}

TEST(SimulatedSeconds, OfRanksThatShareTheLinkOfTheirNode) {
  const auto network = machine().network;
  Ranks ranks({0, 0, 0, 1, 1, 1});
  for (int rank = 0; rank < 3; ++rank) ranks.message(rank, rank + 3, kEager);
  expect_seconds(ranks.seconds(),
                 2 * network.overhead_seconds + network.latency_seconds + 3 * on_link(kEager, network));
}

TEST(SimulatedSeconds, OfProcessesThatCannotFillALink) {
  Machine slow = machine();
  slow.network.process_seconds_per_byte = 3.5 * slow.network.seconds_per_byte;
  const auto& network = slow.network;
  const double overhead = 2 * network.overhead_seconds + network.latency_seconds;
  for (const int count : {1, 2, 3, 6}) {
    std::vector<std::int32_t> nodes(static_cast<std::size_t>(2 * count), 1);
    std::fill_n(nodes.begin(), count, 0);
    Ranks ranks(nodes);
    for (int rank = 0; rank < count; ++rank) ranks.message(rank, rank + count, kEager);
    const double injected = network.gap_seconds + bytes_of(kEager) * network.process_seconds_per_byte;
    expect_seconds(ranks.seconds(slow), overhead + std::max(count * on_link(kEager, network), injected));
  }
}

TEST(SimulatedSeconds, OfManyReceiversOfOneSender) {
  const auto network = machine().network;
  Ranks ranks({0, 1, 2, 3, 4});
  for (int rank = 1; rank < 5; ++rank) ranks.message(0, rank, kEager);
  // The link is slower than the core.
  expect_seconds(ranks.seconds(),
                 2 * network.overhead_seconds + network.latency_seconds + 4 * on_link(kEager, network));
}

TEST(SimulatedSeconds, OfMessagesInsideANode) {
  const auto node = machine().node;
  const auto seconds = [](std::uint64_t bytes, bool single_copy, bool far) {
    Ranks ranks({0, 0});
    ranks.team().single_copy = single_copy;
    if (far) ranks.team().domain_of_rank = {0, 1};
    ranks.message(0, 1, bytes);
    return ranks.seconds();
  };
  for (const bool single_copy : {false, true}) {
    expect_seconds(seconds(kEager, single_copy, false),
                   node.flag_seconds + 2 * bytes_of(kEager) * node.copy_seconds_per_byte);
    expect_seconds(seconds(kEager, single_copy, true),
                   node.flag_seconds + 2 * bytes_of(kEager) * node.far_copy_seconds_per_byte);
  }
  expect_seconds(seconds(kLong, true, false),
                 node.flag_seconds + node.remote_read_seconds + bytes_of(kLong) * node.remote_read_seconds_per_byte);
  expect_seconds(seconds(kLong, false, false), node.flag_seconds + bytes_of(kLong) * node.copy_seconds_per_byte);
}

TEST(SimulatedSeconds, OfWorkInsideARank) {
  const auto node = machine().node;
  for (const std::uint64_t bytes : {std::uint64_t{1} << 20, std::uint64_t{1} << 21}) {
    const double factor = bytes > node.cache_bytes ? node.uncached_factor : 1;
    Ranks ranks({0});
    const Region output{0, bytes, Buffer::output};
    const StepId copied = ranks.of(0).copy({0, bytes, Buffer::input}, output);
    ranks.of(0).reduce({0, bytes, Buffer::input}, output, {copied});
    expect_seconds(ranks.seconds(),
                   factor * bytes_of(bytes) * (node.copy_seconds_per_byte + node.combine_seconds_per_byte));
  }
}

TEST(SimulatedSeconds, OfFlagsThatARankLooksAtOneAfterAnother) {
  const auto node = machine().node;
  Ranks ranks({0, 0, 0, 0});
  for (int rank = 1; rank < 4; ++rank) {
    ranks.of(rank).signal(0, 0);
    ranks.of(0).wait(rank, 0);
  }
  expect_seconds(ranks.seconds(), 3 * node.flag_seconds);
}

TEST(SimulatedSeconds, OfReadsOfSharedMemory) {
  const auto node = machine().node;
  Ranks ranks({0, 0});
  const Region shared = ranks.of(0).shared(kEager);
  const StepId copied = ranks.of(0).copy({0, kEager, Buffer::input}, shared);
  ranks.of(0).signal(1, 0, {copied});
  const StepId seen = ranks.of(1).wait(0, 0);
  ranks.of(1).read(shared, 0, {0, kEager, Buffer::output}, {seen});
  expect_seconds(ranks.seconds(), node.flag_seconds + 2 * bytes_of(kEager) * node.copy_seconds_per_byte);
}

// Four ranks publish their memory at once; eleven tasks, three sources and one target each.
TEST(SimulatedSeconds, OfTasksThatAnyCoreRuns) {
  const auto node = machine().node;
  const auto seconds = [](int cores) {
    Ranks ranks({0, 0, 0, 0});
    for (int rank = 0; rank < 4; ++rank) {
      for (std::uint64_t i = 0; i < 11; ++i) {
        const Region region{i * kEager, kEager, Buffer::input};
        ranks.of(rank).task({}, std::array{RankRegion{region, 0}, RankRegion{region, 1}, RankRegion{region, 2}},
                            std::array{RankRegion{{i * kEager, kEager, Buffer::output}, 3}});
      }
      ranks.of(rank).publish_tasks(0, 11, {});
    }
    Machine given = machine();
    given.node.cores = cores;
    return ranks.seconds(given);
  };
  const double task = node.task_seconds + 3 * node.remote_read_seconds +
                      3 * bytes_of(kEager) * node.remote_read_seconds_per_byte +
                      2 * bytes_of(kEager) * node.combine_seconds_per_byte;
  expect_seconds(seconds(64), 3 * task);
  expect_seconds(seconds(3), 4 * task);
  expect_seconds(seconds(1), 11 * task);
}

TEST(SimulatedSeconds, OfRanksThatShareCores) {
  Machine two_cores = machine();
  two_cores.node.cores = 2;
  Ranks ranks({0, 0, 0, 0, 0, 1, 1, 1, 1, 1});
  for (int rank = 0; rank < 10; ++rank) ranks.of(rank).copy({0, kLong, Buffer::input}, {0, kLong, Buffer::output});
  const double one = bytes_of(kLong) * machine().node.copy_seconds_per_byte;
  expect_seconds(ranks.seconds(), one);
  expect_seconds(ranks.seconds(two_cores), 3 * one);
}

std::vector<Plan> plan_all(const Collective& collective, Team team) {
  std::vector<Plan> plans;
  for (team.rank = 0; team.rank < team.size(); ++team.rank) plans.push_back(plan_collective(team, collective));
  return plans;
}

Team one_per_node(int ranks) {
  Team team;
  for (int rank = 0; rank < ranks; ++rank) team.node_of_rank.push_back(rank);
  return team;
}

TEST(SimulatedSeconds, OfAChainOfSegments) {
  Machine given = machine();
  given.network.eager_bytes = 1 << 20;
  const auto& network = given.network;
  for (const int ranks : {2, 3, 9})
    for (const int segments : {1, 2, 40}) {
      const Team team = one_per_node(ranks);
      const Collective collective{.kind = CollectiveKind::bcast,
                                  .count = kLong * static_cast<std::uint64_t>(segments),
                                  .algorithm = "chain",
                                  .segment_bytes = kLong};
      const double segment = on_link(kLong, network);
      expect_seconds(
          simulated_seconds(plan_all(collective, team), team, given),
          (ranks - 1) * (2 * network.overhead_seconds + network.latency_seconds + segment) + (segments - 1) * segment);
    }
}

TEST(SimulatedSeconds, OfRecursiveDoubling) {
  const auto network = machine().network;
  const auto node = machine().node;
  for (const int rounds : {1, 3, 6}) {
    const Team team = one_per_node(1 << rounds);
    const Collective collective{.kind = CollectiveKind::allreduce,
                                .count = kEager / 4,
                                .dtype = DType::float32,
                                .algorithm = "recursive_doubling"};
    expect_seconds(simulated_seconds(plan_all(collective, team), team, machine()),
                   rounds * (2 * network.overhead_seconds + network.latency_seconds + on_link(kEager, network) +
                             bytes_of(kEager) * node.combine_seconds_per_byte));
  }
}

TEST(SimulatedSeconds, OfShortDataAreLeastByFlagsOnOneNode) {
  const Team team{.node_of_rank = std::vector<std::int32_t>(8)};
  const auto seconds = [&](CollectiveKind kind, std::string algorithm) {
    const Collective collective{.kind = kind, .count = 2, .dtype = DType::float32, .algorithm = std::move(algorithm)};
    return simulated_seconds(plan_all(collective, team), team, Machine{});
  };
  for (const CollectiveKind kind : {CollectiveKind::bcast, CollectiveKind::reduce, CollectiveKind::allreduce})
    EXPECT_LT(seconds(kind, "shared"), seconds(kind, "divided")) << name(kind);
}

// Every time is a sum of parameters along some path, so the time of a machine that is twice as slow is twice as long.
TEST(SimulatedSeconds, ScaleWithTheMachine) {
  Machine slow = machine();
  for (double* each :
       {&slow.network.latency_seconds, &slow.network.overhead_seconds, &slow.network.gap_seconds,
        &slow.network.seconds_per_byte, &slow.network.process_seconds_per_byte, &slow.node.flag_seconds,
        &slow.node.copy_seconds_per_byte, &slow.node.far_copy_seconds_per_byte, &slow.node.remote_read_seconds,
        &slow.node.remote_read_seconds_per_byte, &slow.node.combine_seconds_per_byte, &slow.node.task_seconds})
    *each *= 2;
  Team team{.node_of_rank = {0, 0, 1, 1, 1, 2, 2, 3}, .domain_of_rank = {0, 1, 2, 2, 3, 4, 4, 5}};
  for (const Algorithm& row : algorithms()) {
    Collective collective{.kind = row.kind, .count = 30'000, .dtype = DType::float32};
    collective.algorithm = std::string(row.name);
    if (row.kind == CollectiveKind::barrier) collective.count = 0;
    if (is_neighborhood(row.kind))
      collective.graph = std::make_shared<const Graph>(Graph::cartesian(std::vector{4, 2}, {true, false}));
    if (has_counts(row.kind) || !row.fits(team, collective)) continue;
    const std::vector<Plan> plans = plan_all(collective, team);
    const double seconds = simulated_seconds(plans, team, machine());
    EXPECT_GT(seconds, 0) << name(row.kind) << "/" << row.name;
    expect_seconds(simulated_seconds(plans, team, slow), 2 * seconds);
  }
}

double& parameter_of(Machine& machine, CostTerm term) {
  switch (term) {
    case CostTerm::latency: return machine.network.latency_seconds;
    case CostTerm::overhead: return machine.network.overhead_seconds;
    case CostTerm::link: return machine.network.seconds_per_byte;
    case CostTerm::copy: return machine.node.remote_read_seconds_per_byte;
    case CostTerm::combine: return machine.node.combine_seconds_per_byte;
    case CostTerm::synchronization: return machine.node.flag_seconds;
  }
  return machine.node.flag_seconds;
}

TEST(SimulatedCost, HasTheSecondsAndTheirTerms) {
  const Team team{.node_of_rank = {0, 0, 1, 1, 1, 2, 2, 3}, .domain_of_rank = {0, 1, 2, 2, 3, 4, 4, 5}};
  for (const Algorithm& row : algorithms()) {
    Collective collective{.kind = row.kind, .count = 30'000, .dtype = DType::float32};
    collective.algorithm = std::string(row.name);
    if (is_neighborhood(row.kind))
      collective.graph = std::make_shared<const Graph>(Graph::cartesian(std::vector{4, 2}, {true, false}));
    if (has_counts(row.kind) || !row.fits(team, collective)) continue;
    const std::vector<Plan> plans = plan_all(collective, team);
    const Cost cost = simulated_cost(plans, team, machine());
    EXPECT_EQ(cost.seconds, simulated_seconds(plans, team, machine())) << name(row.kind) << "/" << row.name;
    double sum = 0;
    for (const double term : cost.terms) {
      EXPECT_GE(term, -1e-15);
      sum += term;
    }
    expect_seconds(sum, cost.seconds);
  }
}

// A path stays the longest if a parameter changes by little, so each term grows with its parameters.
TEST(SimulatedCost, TermsAreThoseOfTheCriticalPath) {
  Team team{.node_of_rank = {0, 0, 0, 1, 1, 1}};
  const Collective collective{
      .kind = CollectiveKind::reduce, .count = kLong / 4, .dtype = DType::float32, .algorithm = "hierarchical"};
  const std::vector<Plan> plans = plan_all(collective, team);
  const Cost cost = simulated_cost(plans, team, machine());
  for (std::size_t i = 0; i < kCostTerms; ++i) {
    const auto term = static_cast<CostTerm>(i);
    Machine slower = machine();
    double& parameter = parameter_of(slower, term);
    const double share = cost.of(term) / parameter;  // how often it is on the path
    parameter *= 1 + 1e-6;
    if (term == CostTerm::link) {
      slower.network.process_seconds_per_byte = parameter;
      slower.network.gap_seconds *= 1 + 1e-6;
    }
    const double grown = simulated_seconds(plans, team, slower) - cost.seconds;
    EXPECT_GT(cost.of(term), 0) << name(term);
    if (term == CostTerm::synchronization)  // remote reads' system calls count there, too
      EXPECT_LE(grown, share * machine().node.flag_seconds * 1.01e-6);
    else
      EXPECT_NEAR(grown, cost.of(term) * 1e-6, cost.of(term) * 1e-8) << name(term);
  }
}

TEST(SimulatedSeconds, RefusePlansThatDeadlock) {
  Team team{.node_of_rank = {0, 1}};
  std::vector<Plan> plans;
  for (int rank = 0; rank < 2; ++rank) {
    PlanBuilder builder("test", rank, 2);
    const StepId received = builder.recv({0, 8, Buffer::output}, 1 - rank, 0);
    builder.send({0, 8, Buffer::input}, 1 - rank, 0, {received});
    plans.push_back(std::move(builder).finish(8, 8));
  }
  EXPECT_THROW(simulated_seconds(plans, team, machine()), Error);
  std::swap(plans[0].steps[1].tag, plans[0].steps[0].tag);
  plans[0].steps[1].tag = 7;
  EXPECT_THROW(simulated_seconds(plans, team, machine()), Error);
}

TEST(NetworkClasses, AreKnownByName) {
  EXPECT_GE(network_classes().size(), 6u);
  for (const NetworkClass& each : network_classes()) {
    const Machine found = machine_with(each.name);
    EXPECT_EQ(found.network.latency_seconds, each.network.latency_seconds);
    EXPECT_LE(found.network.seconds_per_byte, found.network.process_seconds_per_byte) << each.name;
    EXPECT_GT(found.network.gap_seconds, 0) << each.name;
    EXPECT_FALSE(each.description.empty());
  }
  try {
    (void)machine_with("carrier pigeon");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("tcp-10g"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace penstock
