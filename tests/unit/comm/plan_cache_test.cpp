// The cache keeps plans for equal calls, up to a bound in bytes.
#include "comm/plan_cache.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "comm/state.hpp"
#include "penstock/options.hpp"
#include "plan/memory.hpp"
#include "unit/comm/outcomes.hpp"

namespace penstock::comm {
namespace {

Collective bcast_of(std::uint64_t count) { return {.kind = CollectiveKind::bcast, .count = count}; }

/// A plan cache that counts the plans it makes.
class CountedPlans {
 public:
  explicit CountedPlans(std::uint64_t most_bytes) : cache(most_bytes) {}

  std::shared_ptr<const Planned> get(const Collective& asked) {
    return cache.get(
        asked, [&](const Collective& given) { return normalized(given, 0); },
        [&](const Collective& collective) {
          ++made;
          return Planned{collective, std::make_shared<const Plan>(plan_collective(team, collective)),
                         signature(collective)};
        });
  }

  Team team{.rank = 0, .node_of_rank = std::vector<std::int32_t>(4)};
  PlanCache cache;
  int made = 0;
};

TEST(PlanCache, EvictsThePlanThatWasUsedLeastRecently) {
  CountedPlans one(std::uint64_t{1} << 30);
  const std::uint64_t plan_bytes = one.get(bcast_of(1))->memory_bytes();
  CountedPlans plans(3 * plan_bytes);
  for (const std::uint64_t count : {1, 2, 3}) plans.get(bcast_of(count));
  EXPECT_EQ(plans.made, 3);
  plans.get(bcast_of(3));  // the latest call of its kind
  plans.get(bcast_of(1));
  EXPECT_EQ(plans.made, 3);
  plans.get(bcast_of(4));  // evicts 2
  for (const std::uint64_t count : {3, 1, 4}) plans.get(bcast_of(count));
  EXPECT_EQ(plans.made, 4);
  plans.get(bcast_of(2));
  EXPECT_EQ(plans.made, 5);
}

TEST(PlanCache, TheLatestCallOfAKindIsAUse) {
  CountedPlans one(std::uint64_t{1} << 30);
  const Collective barrier{.kind = CollectiveKind::barrier};
  const std::uint64_t room = 2 * one.get(bcast_of(1))->memory_bytes() + one.get(barrier)->memory_bytes();
  CountedPlans plans(room);
  plans.get(barrier);
  for (std::uint64_t count = 1; count < 50; ++count) {
    plans.get(bcast_of(count));
    plans.get(barrier);
  }
  EXPECT_EQ(plans.made, 50);
}

TEST(PlanCache, KnowsARecentCallByWhatIsPlainOfIt) {
  CountedPlans plans(std::uint64_t{1} << 30);
  const auto again = [&](const PlainCall& asked, bool fits = true) {
    return plans.cache.again(asked, [&](const Plan&) { return fits; });
  };
  const PlainCall call{.kind = CollectiveKind::bcast, .root = 1, .count = 8};
  EXPECT_EQ(again(call), nullptr);
  const std::shared_ptr<const Planned> planned = plans.get(call.collective());
  EXPECT_EQ(again(call, false), nullptr);
  EXPECT_EQ(planned->runs, 1u);
  EXPECT_EQ(again(call), planned.get());
  EXPECT_EQ(planned->runs, 2u);
  for (const auto& change : std::vector<void (*)(PlainCall&)>{
           [](PlainCall& other) { other.kind = CollectiveKind::gather; },
           [](PlainCall& other) { other.dtype = DType::int32; }, [](PlainCall& other) { other.op = ReduceOp::max; },
           [](PlainCall& other) { other.in_place = true; }, [](PlainCall& other) { other.root = 2; },
           [](PlainCall& other) { other.count = 9; }}) {
    PlainCall other = call;
    change(other);
    EXPECT_EQ(again(other), nullptr);
  }
  plans.cache.forget_recent();
  EXPECT_EQ(again(call), nullptr);
  // The same plain part, and more.
  for (const auto& change : std::vector<void (*)(Collective&)>{
           [](Collective& other) { other.algorithm = "chain"; }, [](Collective& other) { other.segment_bytes = 4; },
           [](Collective& other) { other.radix = 3; }, [](Collective& other) { other.split = 0; },
           [](Collective& other) {
             other.receive.counts = {1, 2, 3, 4};
           }}) {
    Collective other = call.collective();
    change(other);
    plans.get(other);
    EXPECT_EQ(again(call), nullptr);
  }
}

TEST(PlanCache, KnowsTwoCallsThatTakeTurns) {
  std::vector<PlainCall> calls;
  for (const CollectiveKind kind : {CollectiveKind::barrier, CollectiveKind::bcast, CollectiveKind::reduce,
                                    CollectiveKind::allreduce, CollectiveKind::gather, CollectiveKind::alltoall})
    for (const std::uint64_t count : {1U, 8U, 16U, 1024U, 4096U, 65536U})
      for (const int root : {0, 3})
        if ((kind != CollectiveKind::barrier || count == 1) && (is_rooted(kind) || root == 0))
          calls.push_back({.kind = kind, .root = root, .count = kind == CollectiveKind::barrier ? 0 : count});
  for (std::size_t i = 0; i < calls.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      CountedPlans plans(std::uint64_t{1} << 30);
      plans.get(calls[i].collective());
      plans.get(calls[j].collective());
      for (const PlainCall& call : {calls[i], calls[j]})
        EXPECT_NE(plans.cache.again(call, [](const Plan&) { return true; }), nullptr)
            << name(calls[i].kind) << ' ' << calls[i].count << ", " << name(calls[j].kind) << ' ' << calls[j].count;
    }
}

TEST(PlanCache, APlanInUseSurvivesItsEviction) {
  CountedPlans plans(1);
  const std::shared_ptr<const Planned> first = plans.get(bcast_of(1000));
  plans.get(bcast_of(2000));
  EXPECT_EQ(first->collective.count, 1000u);
  EXPECT_EQ(first->plan->output_bytes, 1000u);
  EXPECT_EQ(plans.get(bcast_of(1000))->plan->output_bytes, 1000u);
  EXPECT_EQ(plans.made, 3);
}

TEST(PlanCache, CountsWhatAPlanConsistsOf) {
  Plan plan;
  const std::uint64_t empty = plan::memory_bytes(plan);
  plan.steps.resize(100);
  plan.dependencies.resize(200);
  plan.blocks.resize(300);
  plan.tasks.resize(400);
  plan.task_regions.resize(500);
  plan.task_groups.resize(600);
  plan.algorithm.assign(1000, 'a');
  EXPECT_GE(plan::memory_bytes(plan) - empty, 100 * sizeof(Step) + 200 * sizeof(StepId) + 300 * sizeof(Block) +
                                                  400 * sizeof(SharedTask) + 500 * sizeof(RankRegion) +
                                                  600 * sizeof(TaskGroup) + 900);
  Planned planned{.collective = {}, .plan = std::make_shared<const Plan>()};
  const std::uint64_t alone = planned.memory_bytes();
  planned.collective.receive.counts.resize(1000);
  EXPECT_GE(planned.memory_bytes() - alone, 8000u);
}

TEST(PlanCache, OfACommunicatorHoldsTheOptionsBound) {
  static constexpr std::uint64_t kBytes = 64 << 10;
  const std::uint64_t before = std::exchange(options().plan_cache_bytes, kBytes);
  const auto errors = outcomes({0, 0, 0}, [](Comm& comm) {
    std::mt19937 random(7);  // the same on all ranks
    std::uint64_t largest = 0;
    for (int turn = 0; turn < 400; ++turn) {
      const std::uint64_t count = 1 + random() % 5000;
      const std::vector<std::int32_t> in(count, 1);
      std::vector<std::int32_t> out(count);
      comm.run({.kind = CollectiveKind::allreduce, .count = count, .dtype = DType::int32}, std::as_bytes(std::span(in)),
               std::as_writable_bytes(std::span(out)));
      ASSERT_EQ(out[count - 1], 3);
      ASSERT_LE(comm.state().planner().plans().size_bytes(), kBytes) << "turn " << turn;
      largest = std::max(largest, comm.state().planner().plans().size_bytes());
    }
    EXPECT_GT(largest, kBytes / 2);
    EXPECT_NE(comm.report().find("allreduce"), std::string::npos);
  });
  options().plan_cache_bytes = before;
  for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
}

}  // namespace
}  // namespace penstock::comm
