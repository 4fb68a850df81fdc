// Plans with time on a SimGrid platform: closed forms, agreement with simulated_seconds(), and failures.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <simgrid/s4u.hpp>

#include "penstock/collective.hpp"
#include "penstock/cost_model.hpp"
#include "penstock/error.hpp"
#include "plan/order.hpp"
#include "simgrid/executor.hpp"
#include "simgrid/platform.hpp"

namespace penstock {
namespace {

namespace s4u = simgrid::s4u;

constexpr std::uint64_t kEager = 4000;
constexpr std::uint64_t kLong = 100'000;
constexpr double kExact = 1e-9;  // seconds; SimGrid itself is no more exact

// Unequal primes, so that no term can stand for another. More than nine hosts, so that their order shows.
constexpr const char* kPlatform = R"(<?xml version="1.0"?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <zone id="test" routing="Full">
    <prop id="network.overhead_seconds" value="307e-9"/>
    <prop id="network.gap_seconds" value="101e-9"/>
    <prop id="network.eager_bytes" value="8192"/>
    <prop id="node.flag_seconds" value="89e-9"/>
    <prop id="node.combine_seconds_per_byte" value="0.19e-9"/>
    <cluster id="nodes" prefix="node" suffix="" radical="0-11" speed="1Gf" core="2" bw="9GBps" lat="1003ns"
             sharing_policy="SPLITDUPLEX" loopback_bw="7GBps" loopback_lat="211ns"/>
  </zone>
</platform>
)";

// SimGrid has one engine and one platform in a process.
const s4u::Engine& engine() {
  static const s4u::Engine* const made = [] {
    static std::string name = "test";
    static std::string quiet = "--log=root.thresh:critical";
    static char* arguments[] = {name.data(), quiet.data(), nullptr};
    static int count = 2;
    auto* engine = new s4u::Engine(&count, arguments);
    simulated::set_network_model();
    const std::string path = testing::TempDir() + "/penstock-platform-" + std::to_string(getpid()) + ".xml";
    std::ofstream(path) << kPlatform;
    engine->load_platform(path);
    std::remove(path.c_str());
    return engine;
  }();
  return *made;
}

std::vector<s4u::Host*> hosts(int nodes) { return simulated::hosts_of(engine(), nodes); }
Machine machine() { return simulated::machine_of(engine(), hosts(0)); }

/// Plans that the tests write step by step.
class Ranks {
 public:
  explicit Ranks(int nodes, int ranks_per_node = 1)
      : hosts_(hosts(nodes)), team_(simulated::team_of(hosts_, ranks_per_node)) {
    for (int rank = 0; rank < team_.size(); ++rank) builders_.emplace_back("test", rank, team_.size());
  }

  PlanBuilder& of(int rank) { return builders_[static_cast<std::size_t>(rank)]; }
  void message(int from, int to, std::uint64_t bytes) {
    of(from).send({0, bytes, Buffer::input}, to, 0);
    of(to).recv({0, bytes, Buffer::output}, from, 0);
  }
  double seconds(simulated::Charges charges = simulated::Charges::machine) {
    std::vector<Plan> plans;
    for (PlanBuilder& builder : builders_) plans.push_back(std::move(builder).finish(kLong, kLong));
    return simulated::run(engine(), hosts_, plans, team_, machine(), {}, charges);
  }

 private:
  std::vector<s4u::Host*> hosts_;
  Team team_;
  std::vector<PlanBuilder> builders_;
};

double on_link(std::uint64_t bytes) {
  const Machine::Network network = machine().network;
  return network.gap_seconds + static_cast<double>(bytes) * network.seconds_per_byte;
}

TEST(Platform, GivesHostsInNaturalOrderAndTheMachine) {
  std::vector<std::string> names;
  for (const s4u::Host* host : hosts(11)) names.push_back(host->get_name());
  EXPECT_EQ(names[2], "node2");
  EXPECT_EQ(names[10], "node10");
  const Machine found = machine();
  EXPECT_NEAR(found.network.latency_seconds, 2006e-9, 1e-15);
  EXPECT_NEAR(found.network.seconds_per_byte, 1 / 9e9, 1e-15);
  EXPECT_EQ(found.network.process_seconds_per_byte, found.network.seconds_per_byte);
  EXPECT_EQ(found.network.overhead_seconds, 307e-9);
  EXPECT_EQ(found.network.eager_bytes, 8192u);
  EXPECT_EQ(found.node.combine_seconds_per_byte, 0.19e-9);
  EXPECT_EQ(found.node.cores, 2);
  EXPECT_THROW(hosts(13), Error);
}

TEST(Executor, AShortMessageTakesOverheadsLatencyAndItsBytes) {
  Ranks ranks(2);
  ranks.message(0, 1, kEager);
  const Machine::Network network = machine().network;
  EXPECT_NEAR(ranks.seconds(), 2 * network.overhead_seconds + network.latency_seconds + on_link(kEager), kExact);
}

TEST(Executor, ALongMessageAlsoWaitsForItsReceiver) {
  Ranks ranks(2);
  ranks.message(0, 1, kLong);
  const Machine::Network network = machine().network;
  EXPECT_NEAR(ranks.seconds(), 2 * network.overhead_seconds + 3 * network.latency_seconds + on_link(kLong), kExact);
}

TEST(Executor, ChargedAsPeersMessagesTakeOverheadsIfTheyAreShortLatencyAndTheirBytes) {
  const Machine::Network network = machine().network;
  for (const bool is_inside : {false, true})
    for (const std::uint64_t bytes : {kEager, kLong}) {
      Ranks ranks(is_inside ? 1 : 2, is_inside ? 2 : 1);
      ranks.message(0, 1, bytes);
      const double way = is_inside ? 211e-9 : network.latency_seconds;
      const double rate = is_inside ? 7e9 : 9e9;
      const double overheads = bytes == kEager ? 2 * network.overhead_seconds : 0;
      EXPECT_NEAR(ranks.seconds(simulated::Charges::as_peers), overheads + way + static_cast<double>(bytes) / rate,
                  kExact)
          << is_inside << ", " << bytes << " bytes";
    }
}

TEST(Executor, ChargedAsPeersCopiesAreFreeAndSumsAreNot) {
  Ranks ranks(1);
  const StepId copied = ranks.of(0).copy({0, kLong, Buffer::input}, {0, kLong, Buffer::output});
  ranks.of(0).reduce({0, kLong, Buffer::input}, {0, kLong, Buffer::output}, {copied});
  EXPECT_NEAR(ranks.seconds(simulated::Charges::as_peers), static_cast<double>(kLong) * 0.19e-9, kExact);
}

TEST(Executor, ChargedAsPeersALongMessageWaitsForItsReceiver) {
  Ranks ranks(2);
  ranks.of(0).send({0, kLong, Buffer::input}, 1, 0);
  const StepId late = ranks.of(1).reduce({0, kLong, Buffer::input}, {0, kLong, Buffer::output});
  ranks.of(1).recv({0, kLong, Buffer::output}, 0, 0, {late});
  EXPECT_NEAR(ranks.seconds(simulated::Charges::as_peers),
              static_cast<double>(kLong) * (0.19e-9 + 1 / 9e9) + machine().network.latency_seconds, kExact);
}

TEST(Executor, AChainTakesTheSumOfItsMessages) {
  constexpr int kNodes = 5;
  Ranks ranks(kNodes);
  for (int rank = 0; rank < kNodes; ++rank) {
    StepId received = PlanBuilder::kNone;
    if (rank > 0) received = ranks.of(rank).recv({0, kEager, Buffer::output}, rank - 1, 0);
    if (rank + 1 < kNodes) ranks.of(rank).send({0, kEager, Buffer::output}, rank + 1, 0, {received});
  }
  const Machine::Network network = machine().network;
  EXPECT_NEAR(ranks.seconds(),
              (kNodes - 1) * (2 * network.overhead_seconds + network.latency_seconds + on_link(kEager)),
              kNodes * kExact);
}

TEST(Executor, AProcessHandsItsMessagesOverOneAfterTheOther) {
  Ranks ranks(2);
  for (std::uint32_t tag = 0; tag < 8; ++tag) {
    ranks.of(0).send({0, kEager, Buffer::input}, 1, tag);
    ranks.of(1).recv({0, kEager, Buffer::output}, 0, tag);
  }
  const Machine::Network network = machine().network;
  EXPECT_NEAR(ranks.seconds(), 2 * network.overhead_seconds + network.latency_seconds + 8 * on_link(kEager),
              0.01 * on_link(kEager));
}

TEST(Executor, RanksOfANodeShareItsLink) {
  Ranks ranks(3, 2);
  ranks.message(0, 2, kEager);
  ranks.message(1, 4, kEager);
  const Machine::Network network = machine().network;
  EXPECT_NEAR(ranks.seconds(), 2 * network.overhead_seconds + network.latency_seconds + 2 * on_link(kEager), kExact);
}

TEST(Executor, RanksBeyondTheCoresOfTheirNodeTakeTurns) {
  Ranks ranks(1, 3);
  for (int rank = 0; rank < 3; ++rank) ranks.of(rank).reduce({0, kLong, Buffer::input}, {0, kLong, Buffer::output});
  EXPECT_NEAR(ranks.seconds(), 2 * static_cast<double>(kLong) * machine().node.combine_seconds_per_byte, kExact);
}

std::string text_of_failure(Ranks& ranks) {
  try {
    ranks.seconds();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::internal);
    return error.what();
  }
  return "";
}

TEST(Executor, ADeadlockNamesRanksAndSteps) {
  Ranks ranks(2);
  for (int rank = 0; rank < 2; ++rank) {
    const StepId received = ranks.of(rank).recv({0, 8, Buffer::output}, 1 - rank, 0);
    ranks.of(rank).send({0, 8, Buffer::input}, 1 - rank, 0, {received});
  }
  EXPECT_EQ(
      text_of_failure(ranks),
      "simulation: deadlock with 4 steps left; rank 0, step 0 (recv output[0, 8) from 1 tag 0) waits for rank 1, step "
      "1 (send input[0, 8) to 0 tag 0), which has not started; rank 1, step 0 (recv output[0, 8) from 0 tag 0) waits "
      "for rank 0, step 1 (send input[0, 8) to 1 tag 0), which has not started");
}

TEST(Executor, RunsAgainAfterADeadlock) {
  Ranks stuck(2);
  for (int rank = 0; rank < 2; ++rank) {
    const StepId waited = stuck.of(rank).recv({0, 8, Buffer::output}, 1 - rank, 0);
    stuck.of(rank).send({0, 8, Buffer::input}, 1 - rank, 0, {waited});
  }
  EXPECT_NE(text_of_failure(stuck), "");
  Ranks ranks(2);
  ranks.message(0, 1, 8);
  const Machine::Network network = machine().network;
  EXPECT_NEAR(ranks.seconds(), 2 * network.overhead_seconds + network.latency_seconds + on_link(8), kExact);
}

TEST(Executor, AMessageWithoutAPartnerIsNamed) {
  Ranks ranks(2);
  ranks.of(1).send({0, 8, Buffer::input}, 0, 3);
  EXPECT_EQ(text_of_failure(ranks), "simulation: rank 1, step 0 (send input[0, 8) to 0 tag 3) has no partner");
}

struct Case {
  CollectiveKind kind;
  std::uint64_t bytes;
  int nodes;
  int ranks_per_node;
  double tolerance = 0.02;
};

/// The plans of every row that fits.
void for_each_row(const Case& each,
                  const std::function<void(const Algorithm&, const Team&, std::vector<Plan>)>& visit) {
  Team team = simulated::team_of(hosts(each.nodes), each.ranks_per_node);
  for (const Algorithm& row : algorithms()) {
    Collective collective{.kind = each.kind, .count = each.bytes / 4, .dtype = DType::float32};
    if (row.kind != each.kind || row.name == "native" || !row.fits(team, collective)) continue;
    collective.algorithm = row.name;
    std::vector<Plan> plans;
    for (team.rank = 0; team.rank < team.size(); ++team.rank) plans.push_back(plan_collective(team, collective));
    visit(row, team, std::move(plans));
  }
}

// Several messages that meet on a link share it in SimGrid, and all end late; in simulated_seconds() they queue.
constexpr double kMeet = 0.25;
constexpr double kAlone = 0.1;

const std::vector<Case> kCases = {
    {CollectiveKind::bcast, 8, 1, 4},
    {CollectiveKind::bcast, 1 << 20, 1, 4},
    {CollectiveKind::reduce, 1 << 18, 1, 4},
    {CollectiveKind::allreduce, 8, 1, 4},
    {CollectiveKind::allreduce, 1 << 20, 1, 4},
    {CollectiveKind::alltoall, 1 << 14, 1, 4},
    {CollectiveKind::bcast, 8, 5, 1, kAlone},
    {CollectiveKind::bcast, 1 << 20, 5, 1, kAlone},
    {CollectiveKind::reduce, 1 << 18, 4, 1, kAlone},
    {CollectiveKind::allreduce, 1 << 18, 4, 1, kAlone},
    {CollectiveKind::allgather, 1 << 14, 4, 1, kAlone},
    {CollectiveKind::alltoall, 1 << 12, 3, 1, kAlone},
    {CollectiveKind::barrier, 0, 6, 1, kAlone},
    {CollectiveKind::reduce_scatter_block, 1 << 12, 4, 1, kAlone},
    {CollectiveKind::bcast, 1 << 20, 4, 2, kMeet},
    {CollectiveKind::reduce, 8, 4, 2, kMeet},
    {CollectiveKind::reduce, 1 << 18, 4, 2, kMeet},
    {CollectiveKind::allreduce, 8, 4, 2, kMeet},
    {CollectiveKind::allreduce, 1 << 18, 4, 2, kMeet},
    {CollectiveKind::allgather, 1 << 14, 4, 2, kMeet},
    {CollectiveKind::alltoall, 1 << 12, 3, 2, kMeet},
};

TEST(Executor, AgreesWithTheSimulationWithoutAPlatform) {
  int rows = 0;
  for (const Case& each : kCases)
    for_each_row(each, [&](const Algorithm& row, const Team& team, const std::vector<Plan>& plans) {
      ++rows;
      const double own = simulated_seconds(plans, team, machine());
      const double on_platform = simulated::run(engine(), hosts(each.nodes), plans, team, machine());
      // Steps are kept in order because their messages would meet on a link. Those of one rank no longer do.
      const bool meets = std::ranges::any_of(
          plans, [](const Plan& plan) { return std::ranges::any_of(plan.steps, &Step::has_order_dependency); });
      EXPECT_NEAR(on_platform / own, 1, meets ? std::max(each.tolerance, kMeet) : each.tolerance)
          << name(each.kind) << "/" << row.name << ", " << each.bytes << " bytes, " << each.nodes << " nodes x "
          << each.ranks_per_node << ": " << 1e6 * on_platform << " us, without a platform " << 1e6 * own;
    });
  EXPECT_GT(rows, 60);
}

// The data that plans move are checked by verify() and simulate(); here, that the order of the steps is legal.
TEST(Executor, EveryStepEndsOnceAndAfterWhatItNeeds) {
  for (const Case& each : kCases)
    for_each_row(each, [&](const Algorithm& row, const Team& team, const std::vector<Plan>& plans) {
      std::map<std::pair<std::int32_t, StepId>, int> ends;
      const auto on_end = [&](std::int32_t rank, StepId step) {
        const Plan& plan = plans[static_cast<std::size_t>(rank)];
        for (const StepId earlier : plan::dependencies(plan, step))
          EXPECT_EQ((ends[{rank, earlier}]), 1) << name(each.kind) << "/" << row.name;
        ++ends[{rank, step}];
      };
      simulated::run(engine(), hosts(each.nodes), plans, team, machine(), on_end);
      std::size_t steps = 0;
      for (const Plan& plan : plans) steps += plan.steps.size();
      EXPECT_EQ(ends.size(), steps);
      for (const auto& [step, times] : ends) EXPECT_EQ(times, 1) << name(each.kind) << "/" << row.name;
    });
}

}  // namespace
}  // namespace penstock
