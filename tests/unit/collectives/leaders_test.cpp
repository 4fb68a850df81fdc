#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "penstock/collective.hpp"
#include "plan/tasks.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kBytes = 16 << 20;

Plan leader_ring(int rank) {
  Team team{rank, {0, 0, 1, 1, 2, 2, 3, 3}};
  team.single_copy = true;
  return plan_collective(
      team, {.kind = CollectiveKind::allreduce, .count = kBytes, .dtype = DType::uint8, .algorithm = "leader_ring"});
}

const RankRegion& first_region(const Plan& plan, const Step& publisher) {
  return plan.task_regions[plan::tasks(plan, publisher).front().first_region];
}

// Communication cores send and receive for the first rank of their node alone.
TEST(Levels, LongDataOfAnyRootPassesTheFirstRanksOfTheNodesBesideCommunicationCores) {
  const std::vector<std::int32_t> nodes{0, 0, 1, 1, 1, 2, 2};
  for (const CollectiveKind kind : {CollectiveKind::bcast, CollectiveKind::reduce})
    for (const char* row : {"node_shared", "leader_postal", "leader_binary", "leader_chain", "leader_two_tree", ""})
      for (int root = 0; root < 7; ++root) {
        const Collective collective{
            .kind = kind, .count = kBytes, .dtype = DType::uint8, .root = root, .algorithm = row};
        std::vector<Plan> plans;
        for (int rank = 0; rank < 7; ++rank)
          plans.push_back(plan_collective({.rank = rank, .node_of_rank = nodes, .progress_cores = 1}, collective));
        EXPECT_EQ(verify(plans, nodes, 1), std::vector<std::string>{}) << row << ", root " << root;
        for (const int rank : {1, 3, 4, 6})
          for (const Step& step : plans[static_cast<std::size_t>(rank)].steps)
            EXPECT_TRUE(step.kind != StepKind::send && step.kind != StepKind::recv)
                << name(kind) << "/" << row << ", root " << root << ", rank " << rank;
      }
}

TEST(LeaderRing, CombinesWhatItSendsFirstBeforeTheRest) {
  const Plan plan = leader_ring(2);
  std::vector<const Step*> at_once;
  for (const Step& step : plan.steps)
    if (step.kind == StepKind::publish_tasks && step.dependency_count == 0) at_once.push_back(&step);
  ASSERT_FALSE(at_once.empty());
  EXPECT_EQ(first_region(plan, *at_once.front()).region.offset_bytes, kBytes / 4) << "the part of node 1";
  std::uint64_t bytes = 0;
  for (const Step* publisher : at_once)
    for (const SharedTask& task : plan::tasks(plan, *publisher))
      bytes += plan.task_regions[task.first_region].region.size_bytes;
  EXPECT_LE(bytes, kBytes / 8) << "before anything is sent";
}

TEST(LeaderRing, SpreadsLastWhatArrivesLast) {
  const Plan plan = leader_ring(2);
  const Step* last = nullptr;
  for (const Step& step : plan.steps)
    if (step.kind == StepKind::publish_tasks) last = &step;
  ASSERT_NE(last, nullptr);
  // The last block in the ring is that of the node after the next one.
  EXPECT_GE(first_region(plan, *last).region.offset_bytes, kBytes / 4 * 3);
  EXPECT_LE(first_region(plan, *last).region.size_bytes, kBytes / 32) << "only its end is spread after the exchange";
}

// However long the blocks: messages inside the nodes would take the cores of the leaders.
TEST(LeaderRing, OfAllgatherSharesAllPieces) {
  for (const std::uint64_t block_bytes : {1u << 20, 4u << 20, 64u << 20}) {
    Team team{2, {0, 0, 1, 1, 2, 2, 3, 3}};
    team.single_copy = true;
    const Plan plan = plan_collective(
        team,
        {.kind = CollectiveKind::allgather, .count = block_bytes, .dtype = DType::uint8, .algorithm = "leader_ring"});
    EXPECT_FALSE(plan.tasks.empty()) << block_bytes;
    for (const Step& step : plan.steps)
      if (step.kind == StepKind::send) {
        EXPECT_FALSE(team.same_node(step.peer, team.rank)) << block_bytes;
      }
  }
}

}  // namespace
}  // namespace penstock
