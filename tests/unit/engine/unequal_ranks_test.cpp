// Ranks of unequal machines and options plan alike.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "make_engine.hpp"
#include "penstock/collective.hpp"
#include "ranks.hpp"
#include "takes_all.hpp"

namespace penstock::engine {
namespace {

template <typename T>
T one_of(std::mt19937& random, const std::vector<T>& values) {
  return values[std::uniform_int_distribution<std::size_t>(0, values.size() - 1)(random)];
}

EngineOptions any_options(std::mt19937& random) {
  EngineOptions options;
  options.eager_bytes = one_of<std::uint64_t>(random, {0, 700, 4 << 10, 16 << 10, 64 << 10, 1 << 20});
  options.caches.core = one_of<std::uint64_t>(random, {256 << 10, 512 << 10, 1 << 20, 2 << 20, 3 << 20});
  options.caches.last = one_of<std::uint64_t>(random, {1 << 20, 8 << 20, 32 << 20, 96 << 20});
  options.shared_bytes = one_of<std::uint64_t>(random, {0, 0, 256 << 10, 2 << 20});
  options.single_copy = one_of<int>(random, {0, 1, 1, 1}) != 0;
  options.shared_memory = one_of<int>(random, {0, 1, 1, 1, 1, 1, 1, 1}) != 0;
  return options;
}

struct Facts {
  std::vector<Team> teams;
  std::vector<std::uint64_t> shared_limits;
};

/// What the engines of all ranks say, each made with the options of its rank.
Facts facts_of(const std::vector<std::int32_t>& nodes, const std::vector<EngineOptions>& options) {
  Facts facts{.teams = std::vector<Team>(nodes.size()), .shared_limits = std::vector<std::uint64_t>(nodes.size())};
  auto transports = make_local_transports(nodes);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank)
    threads.emplace_back([&, rank] {
      const auto engine = make_engine(std::move(transports[rank]), options[rank]);
      facts.teams[rank] = engine->team();
      facts.shared_limits[rank] = engine->shared_limit_bytes();
    });
  for (std::thread& thread : threads) thread.join();
  return facts;
}

const std::vector<std::vector<std::int32_t>> kNodes = {{0, 0}, {0, 0, 0, 0}, {0, 0, 1, 1}, {0, 1, 0}, {0, 0, 1}};

TEST(UnequalRanks, HaveTheLeastOfAll) {
  std::vector<EngineOptions> options(4);
  options[0].caches = {.core = 2 << 20, .last = 64 << 20};
  options[1].caches = {.core = 3 << 20, .last = 8 << 20};
  options[2].caches = {.core = 1 << 20, .last = 32 << 20};
  options[2].eager_bytes = 4 << 10;
  for (const std::vector<std::int32_t>& nodes : {kNodes[1], kNodes[2]})
    for (const Team& team : facts_of(nodes, options).teams) {
      EXPECT_EQ(team.core_cache_bytes, 1u << 20);
      EXPECT_EQ(team.last_cache_bytes, 8u << 20);
      EXPECT_EQ(team.message_bytes, 4u << 10);
    }
  options[3].shared_bytes = 256 << 10;  // its cells are shorter
  const std::uint64_t in_cells = facts_of(kNodes[1], options).teams[0].message_bytes;
  EXPECT_GT(in_cells, 0u);
  EXPECT_LT(in_cells, 4u << 10);
}

TEST(UnequalRanks, PlanAlike) {
  std::mt19937 random(7);
  std::set<std::string> chosen;
  for (unsigned trial = 0; trial < 60 / fewer_if_sanitized(6); ++trial) {
    const std::vector<std::int32_t>& nodes = kNodes[trial % kNodes.size()];
    std::vector<EngineOptions> options;
    for (std::size_t rank = 0; rank < nodes.size(); ++rank) options.push_back(any_options(random));
    const Facts facts = facts_of(nodes, options);
    const auto size = static_cast<int>(nodes.size());
    std::set<CollectiveKind> kinds;
    for (const Algorithm& row : algorithms()) kinds.insert(row.kind);
    for (const CollectiveKind kind : kinds)
      for (const std::uint64_t count : {5u, 3000u, 9000u, 70'000u, 300'000u, 1'500'000u}) {
        Collective collective{.kind = kind, .count = count, .dtype = DType::int32};
        if (is_neighborhood(kind))
          collective.graph = std::make_shared<const Graph>(Graph::cartesian(std::vector{size}, {true}));
        const std::string what = "trial " + std::to_string(trial) + ", " + std::string(name(kind)) + " of " +
                                 std::to_string(count) + " elements";
        const Choice first = choose(facts.teams[0], collective);
        std::vector<Plan> plans;
        for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
          const Choice choice = choose(facts.teams[rank], collective);
          ASSERT_EQ(choice.algorithm->name, first.algorithm->name) << what << ", rank " << rank;
          ASSERT_EQ(choice.segment_bytes, first.segment_bytes) << what << ", rank " << rank;
          plans.push_back(plan_collective(facts.teams[rank], collective));
          ASSERT_LE(plans.back().shared_bytes, facts.shared_limits[rank]) << what << ", rank " << rank;
        }
        chosen.insert(std::string(name(kind)) + "/" + std::string(first.algorithm->name));
        ASSERT_EQ(verify(plans, facts.teams[0].node_of_rank, 4), std::vector<std::string>{}) << what;
      }
  }
  for (const char* const row :
       {"bcast/staged", "allgatherv/ring", "reduce/staged_whole", "reduce/staged", "gatherv/shared"})
    EXPECT_TRUE(chosen.contains(row)) << row;
}

}  // namespace
}  // namespace penstock::engine
