// What one of 16,384 ranks plans by default, with a machine. Counted, not timed.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include "penstock/choice_by_cost.hpp"
#include "penstock/collective.hpp"
#include "penstock/cost_model.hpp"
#include "plan/memory.hpp"

namespace penstock {
namespace {

constexpr int kManyRanks = 16'384;

Team many_ranks(int per_node) {
  Team team;
  for (int rank = 0; rank < kManyRanks; ++rank) team.node_of_rank.push_back(rank / per_node);
  team.by_cost = std::make_shared<const ChoiceByCost>(team, machine_with("slingshot"));
  return team;
}

Collective call_of(CollectiveKind kind, std::uint64_t bytes) {
  const std::uint64_t count = kind == CollectiveKind::barrier ? 0 : bytes / 8;
  Collective call{.kind = kind, .count = count, .dtype = DType::float64};
  if (has_send_counts(kind)) call.send.counts.assign(kManyRanks, count);
  if (has_receive_counts(kind)) call.receive.counts.assign(kManyRanks, count);
  return call;
}

std::vector<CollectiveKind> kinds_of_all_ranks() {
  std::vector<CollectiveKind> kinds;
  for (const Algorithm& row : algorithms())
    if (!is_neighborhood(row.kind) && (kinds.empty() || std::ranges::find(kinds, row.kind) == kinds.end()))
      kinds.push_back(row.kind);
  return kinds;
}

// A message for each other rank is what these are: their counts are known to single ranks only.
bool has_a_message_for_each_rank(CollectiveKind kind) {
  return has_counts(kind) && kind != CollectiveKind::reduce_scatter && kind != CollectiveKind::allgatherv;
}

TEST(ManyRanks, PlanShortCallsWithFewSteps) {
  constexpr int kRounds = std::bit_width(static_cast<unsigned>(kManyRanks)) - 1;
  for (const int per_node : {1, 64, 128}) {
    Team team = many_ranks(per_node);
    for (const CollectiveKind kind : kinds_of_all_ranks())
      for (const int rank : {0, kManyRanks / 3, kManyRanks - 1}) {
        if (has_a_message_for_each_rank(kind)) continue;
        team.rank = rank;
        const Plan plan = plan_collective(team, call_of(kind, 8));
        // A few in each round, and those of a leader for each rank of its node.
        EXPECT_LE(plan.steps.size(), static_cast<std::size_t>(8 * kRounds + 6 * per_node))
            << plan.algorithm << ", " << per_node << " ranks on each node, rank " << rank;
      }
  }
}

TEST(ManyRanks, PlanLongCallsInBoundedMemory) {
  for (const int per_node : {1, 64, 128}) {
    Team team = many_ranks(per_node);
    team.rank = kManyRanks / 3;
    for (const CollectiveKind kind : kinds_of_all_ranks())
      for (const std::uint64_t bytes : {64u << 10, 4u << 20}) {
        const Plan plan = plan_collective(team, call_of(kind, bytes));
        const bool has_blocks = has_counts(kind) || kind == CollectiveKind::allgather ||
                                kind == CollectiveKind::alltoall || is_rooted(kind) ||
                                kind == CollectiveKind::reduce_scatter_block;
        EXPECT_LE(plan.steps.size(), has_blocks ? 3u * kManyRanks : 4096u) << plan.algorithm << ", " << bytes;
        if (!has_blocks) {
          EXPECT_LE(plan::memory_bytes(plan), 1u << 20) << plan.algorithm << ", " << bytes;
        }
      }
  }
}

// Planners find blocks by displacements, which are made of the counts if there are none.
TEST(ManyRanks, PlanWithoutDisplacementsAsWithThem) {
  const Team team{.rank = 2, .node_of_rank = {0, 0, 1, 1, 2}};
  for (const CollectiveKind kind : {CollectiveKind::gatherv, CollectiveKind::scatterv, CollectiveKind::allgatherv,
                                    CollectiveKind::alltoallv, CollectiveKind::reduce_scatter})
    for (const int root : {0, 2}) {
      Collective call{.kind = kind, .count = 500, .dtype = DType::uint8, .root = is_rooted(kind) ? root : 0};
      const std::vector<std::uint64_t> counts{3, 0, 500, 7, 90'000};
      const std::vector<std::uint64_t> displacements{0, 3, 3, 503, 510};
      if (has_send_counts(kind)) call.send.counts = counts;
      if (has_receive_counts(kind)) call.receive.counts = counts;
      const Plan plain = plan_collective(team, call);
      if (has_send_counts(kind)) call.send.displacements = displacements;
      if (has_receive_counts(kind)) call.receive.displacements = displacements;
      EXPECT_EQ(to_json(plan_collective(team, call)), to_json(plain)) << name(kind) << ", root " << root;
    }
}

}  // namespace
}  // namespace penstock
