// The neighbours of each rank: both ends of every edge agree.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "penstock/collective.hpp"
#include "penstock/error.hpp"
#include "penstock/graph.hpp"

namespace penstock {
namespace {

using Lists = std::vector<std::vector<std::int32_t>>;

void expect_both_ends_agree(const Graph& graph) {
  for (std::int32_t rank = 0; rank < graph.size(); ++rank) {
    for (const Neighbor& to : graph.destinations(rank)) {
      if (to.rank == Neighbor::kNone) continue;
      const std::size_t there = graph.index_at_destination(rank, to);
      ASSERT_LT(there, graph.sources(to.rank).size());
      EXPECT_EQ(graph.sources(to.rank)[there], (Neighbor{rank, to.edge}));
    }
    for (const Neighbor& from : graph.sources(rank))
      if (from.rank != Neighbor::kNone) {
        ASSERT_LT(graph.index_at_source(rank, from), graph.destinations(from.rank).size());
      }
  }
}

TEST(Graph, IsAGridInTheOrderOfMpi) {
  for (const std::vector<std::int32_t>& dimensions :
       {std::vector<std::int32_t>{}, {1}, {2}, {5}, {2, 3}, {1, 4}, {2, 2, 3}})
    for (unsigned wraps = 0; wraps < 1U << dimensions.size(); ++wraps) {
      std::vector<bool> periodic;
      for (std::size_t d = 0; d < dimensions.size(); ++d) periodic.push_back((wraps >> d & 1U) != 0);
      const Graph grid = Graph::cartesian(dimensions, periodic);
      expect_both_ends_agree(grid);
      for (std::int32_t rank = 0; rank < grid.size(); ++rank) {
        ASSERT_EQ(grid.sources(rank).size(), 2 * dimensions.size());
        // The rank above a rank has it below; what goes up arrives from below, also if both neighbours are one rank.
        for (std::size_t d = 0; d < dimensions.size(); ++d) {
          const Neighbor& up = grid.destinations(rank)[2 * d + 1];
          if (up.rank == Neighbor::kNone) continue;
          EXPECT_EQ(grid.index_at_destination(rank, up), 2 * d);
          EXPECT_EQ(grid.sources(up.rank)[2 * d].rank, rank);
        }
      }
    }
  const Graph open = Graph::cartesian(std::vector{2, 3}, {false, false});
  std::vector<std::int32_t> of_four;
  for (const Neighbor& each : open.sources(4)) of_four.push_back(each.rank);
  EXPECT_EQ(of_four, (std::vector<std::int32_t>{1, Neighbor::kNone, 3, 5}));
}

TEST(Graph, MatchesSeveralEdgesInOrder) {
  const Graph graph(Lists{{0, 1, 1}, {}}, Lists{{0}, {0, Neighbor::kNone, 0}});
  expect_both_ends_agree(graph);
  EXPECT_EQ(graph.index_at_source(0, graph.sources(0)[1]), 0U);
  EXPECT_EQ(graph.index_at_source(0, graph.sources(0)[2]), 2U);
  EXPECT_FALSE(graph == Graph(Lists{{1, 0, 1}, {}}, Lists{{0}, {0, 0}}));
}

std::string says(const Lists& sources, const Lists& destinations) {
  try {
    const Graph made(sources, destinations);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.message();
  }
}

TEST(Graph, RefusesSidesThatDiffer) {
  EXPECT_EQ(says({{1}, {}}, {{}, {0}}), "");
  EXPECT_NE(says({{1}, {}}, {{}, {}}).find("1 edges from rank 1 to rank 0 among the sources, and 0"),
            std::string::npos);
  EXPECT_NE(says({{1}, {}}, {{}, {0, 0}}).find("2 edges from rank 1 to rank 0"), std::string::npos);
  EXPECT_NE(says({{2}, {}}, {{}, {}}).find("expected a rank from 0 to 1"), std::string::npos);
  EXPECT_NE(says({{}}, {{}, {}}).find("expected both of every rank"), std::string::npos);
  EXPECT_THROW(Graph::cartesian(std::vector{2, 0}, {true, true}), Error);
  EXPECT_THROW(Graph::cartesian(std::vector{2}, {true, true}), Error);
}

std::string refusal(const Collective& collective, int ranks = 2) {
  try {
    choose(Team{0, std::vector<std::int32_t>(static_cast<std::size_t>(ranks))}, collective);
    return "";
  } catch (const Error& error) {
    return error.message();
  }
}

TEST(Neighborhood, RefusesWrongArguments) {
  const auto ring = std::make_shared<const Graph>(Graph::cartesian(std::vector{2}, {true}));
  const auto open = std::make_shared<const Graph>(Graph::cartesian(std::vector{2}, {false}));
  const CollectiveKind exchange = CollectiveKind::neighbor_alltoallv;
  EXPECT_EQ(refusal({.kind = CollectiveKind::neighbor_alltoall, .count = 3, .graph = ring}), "");
  EXPECT_NE(refusal({.kind = CollectiveKind::neighbor_alltoall}).find("no neighbours"), std::string::npos);
  EXPECT_NE(refusal({.kind = exchange, .graph = ring}, 3).find("the graph has 2 ranks"), std::string::npos);
  EXPECT_NE(refusal({.kind = exchange, .in_place = true, .graph = ring}).find("MPI_IN_PLACE"), std::string::npos);
  EXPECT_NE(refusal({.kind = exchange, .send = {{1}, {}}, .graph = ring}).find("each of 2 neighbours"),
            std::string::npos);
  EXPECT_NE(refusal({.kind = exchange, .receive = {{2, 2}, {0, 1}}, .graph = ring}).find("overlap"), std::string::npos);
  EXPECT_EQ(refusal({.kind = exchange, .receive = {{2, 2}, {0, 1}}, .graph = open}), "")
      << "rank 0 has no neighbour below";
  EXPECT_NE(refusal({.kind = exchange, .count = std::uint64_t{1} << 62, .graph = ring}).find("2^63"),
            std::string::npos);
}

// Each rank of a periodic grid of 2 x 2 has two edges to each of its two neighbours.
TEST(Neighborhood, EdgesToOneRankShareMessages) {
  const auto grid = std::make_shared<const Graph>(Graph::cartesian(std::vector{2, 2}, {true, true}));
  const auto count_of = [&](CollectiveKind kind, std::uint64_t bytes, StepKind step) {
    const Plan plan =
        plan_collective(Team{0, {0, 0, 0, 0}}, {.kind = kind, .count = bytes, .algorithm = "direct", .graph = grid});
    return std::ranges::count(plan.steps, step, &Step::kind);
  };
  constexpr std::uint64_t kLong = 1 << 16;
  for (const StepKind each : {StepKind::send, StepKind::recv}) {
    EXPECT_EQ(count_of(CollectiveKind::neighbor_allgather, kLong, each), 2) << "the same block for both edges";
    EXPECT_EQ(count_of(CollectiveKind::neighbor_alltoall, 8, each), 2) << "short blocks together";
    EXPECT_EQ(count_of(CollectiveKind::neighbor_alltoall, kLong, each), 4);
  }
  const auto gathered = [&](std::vector<std::uint64_t> counts) {
    return plan_collective(
        Team{0, {0, 0, 0, 0}},
        {.kind = CollectiveKind::neighbor_allgatherv, .count = 4, .receive = {std::move(counts), {}}, .graph = grid});
  };
  EXPECT_NO_THROW(gathered({4, 4, 5, 5}));
  try {
    gathered({4, 4, 4, 5});
    ADD_FAILURE() << "a rank cannot send blocks of two lengths";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(error.message().find("receives 4 bytes of rank 1 as neighbour 2 and 5 as neighbour 3"), std::string::npos)
        << error.message();
  }
}

}  // namespace
}  // namespace penstock
