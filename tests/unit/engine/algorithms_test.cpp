// Every row of algorithms.def gives the same result on the engine and in the simulation. New rows need no edit here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "calls.hpp"
#include "penstock/collective.hpp"
#include "plan/split.hpp"
#include "ranks.hpp"
#include "simulate.hpp"
#include "takes_all.hpp"

namespace penstock::engine {
namespace {

struct Case {
  std::string name;
  std::vector<Plan> plans;
  std::vector<plan::RankMemory> before;
  std::vector<plan::RankMemory> after;
};

const Arithmetic kSumInt32{.dtype = DType::int32, .op = ReduceOp::sum};

/// Word by word: sanitized, a number for each byte takes longer than the operations.
void fill(std::vector<std::byte>& bytes, std::mt19937& random) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint32_t)) {
    const auto word = static_cast<std::uint32_t>(random());
    std::memcpy(&bytes[at], &word, std::min(sizeof word, bytes.size() - at));
  }
}

/// Sanitized, settings of even and of odd numbers of ranks divide the cases.
std::vector<Case> cases_for(const std::vector<std::int32_t>& nodes, bool single_copy) {
  std::vector<Case> cases;
  std::size_t turn = nodes.size();
  std::mt19937 random(1);
  const int size = static_cast<int>(nodes.size());
  for (const Algorithm& row : algorithms())
    for (const std::uint64_t count : {1u, 700u, 20000u})
      for (const bool in_place : {false, true}) {
        if (in_place && (count != 700 || is_neighborhood(row.kind))) continue;
        if (turn++ % fewer_if_sanitized(2) != 0) continue;
        Collective collective{
            .kind = row.kind, .count = count, .dtype = DType::int32, .root = size - 1, .in_place = in_place};
        collective.algorithm = row.name;
        if (is_neighborhood(row.kind))
          collective.graph = std::make_shared<const Graph>(Graph::cartesian(std::vector{size}, {true}));
        Case one;
        bool fits = true;
        for (int rank = 0; rank < size && fits; ++rank) {
          const Team team{rank, nodes, single_copy};
          fits = row.fits(team, collective);
          if (!fits) break;
          one.plans.push_back(row.plan(team, collective));
          plan::split_tree(one.plans.back(), static_cast<int>(cases.size() % 4));
        }
        if (!fits) continue;
        one.name = std::string(row.name) + " with " + std::to_string(count) + " elements, row " +
                   std::to_string(&row - algorithms().data());
        for (const Plan& plan : one.plans) {
          plan::RankMemory memory;
          memory.input.resize(plan.input_bytes);
          memory.output.resize(plan.output_bytes);
          fill(memory.input, random);
          fill(memory.output, random);
          one.before.push_back(std::move(memory));
        }
        one.after = one.before;
        plan::simulate(one.plans, kSumInt32, one.after, 1);
        cases.push_back(std::move(one));
      }
  return cases;
}

struct SweepSetting {
  const char* name;
  std::vector<std::int32_t> nodes;
  int progress_threads;
  bool single_copy;
};

class Algorithms : public testing::TestWithParam<SweepSetting> {};

TEST_P(Algorithms, AllOverlapping) {
  RanksOptions options = ranks_of(GetParam().nodes);
  options.engine.progress_threads = GetParam().progress_threads;
  options.engine.single_copy = GetParam().single_copy;
  const std::vector<Case> cases = cases_for(GetParam().nodes, GetParam().single_copy);
  ASSERT_FALSE(cases.empty());
  run_ranks(options, [&](Engine& engine, int rank) {
    ASSERT_EQ(engine.team().node_of_rank, GetParam().nodes);
    const auto me = static_cast<std::size_t>(rank);
    constexpr std::size_t kAtOnce = 10;
    for (std::size_t first = 0; first < cases.size(); first += kAtOnce) {
      const std::size_t last = std::min(first + kAtOnce, cases.size());
      std::vector<plan::RankMemory> memory;
      std::vector<std::shared_ptr<engine::Run>> runs;
      for (std::size_t i = first; i < last; ++i) memory.push_back(cases[i].before[me]);
      for (std::size_t i = first; i < last; ++i)
        runs.push_back(engine.start(std::make_shared<const Plan>(cases[i].plans[me]),
                                    {memory[i - first].input, memory[i - first].output}, kSumInt32, i));
      for (std::size_t i = last; i-- > first;) {
        runs[i - first]->wait();
        EXPECT_EQ(memory[i - first].output, cases[i].after[me].output) << cases[i].name << " on rank " << rank;
      }
    }
  });
}

/// Ranks that are alone on their nodes, for the fast path between nodes.
class AlgorithmsByRun : public Algorithms {};

TEST_P(AlgorithmsByRun, OneAfterTheOther) {
  RanksOptions options = ranks_of(GetParam().nodes);
  options.engine.progress_threads = GetParam().progress_threads;
  options.engine.single_copy = GetParam().single_copy;
  const std::vector<Case> cases = cases_for(GetParam().nodes, GetParam().single_copy);
  ShortCallCounts counts;
  run_ranks(options, [&](Engine& engine, int rank) {
    const auto me = static_cast<std::size_t>(rank);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      plan::RankMemory memory = cases[i].before[me];
      const auto plan = std::make_shared<const Plan>(cases[i].plans[me]);
      const auto error = failure_of_run(engine, plan, {memory.input, memory.output}, kSumInt32, i, counts);
      ASSERT_FALSE(error) << cases[i].name << ": " << error->what();
      EXPECT_EQ(memory.output, cases[i].after[me].output) << cases[i].name << " on rank " << rank;
    }
  });
  EXPECT_GT(counts.possible, 0u);
  EXPECT_GT(counts.taken, 0u);  // none need take it while packets of the end of an epoch are on their way
}

INSTANTIATE_TEST_SUITE_P(, AlgorithmsByRun,
                         testing::Values(SweepSetting{"nodes_of_one", {0, 1, 2, 3}, 0, true},
                                         SweepSetting{"nodes_of_1_and_2_thread", {0, 1, 1}, 1, false}),
                         [](const testing::TestParamInfo<SweepSetting>& setting) {
                           return std::string(setting.param.name);
                         });

INSTANTIATE_TEST_SUITE_P(, Algorithms,
                         testing::Values(SweepSetting{"one_node_of_4", one_node(4), 0, true},
                                         SweepSetting{"one_node_of_3_copied_twice", one_node(3), 0, false},
                                         SweepSetting{"one_node_of_4_thread", one_node(4), 1, true},
                                         SweepSetting{"nodes_of_3_and_4", {0, 1, 0, 1, 1, 0, 1}, 0, true},
                                         SweepSetting{"nodes_of_1_and_2_thread", {0, 1, 1}, 1, false}),
                         [](const testing::TestParamInfo<SweepSetting>& setting) {
                           return std::string(setting.param.name);
                         });

}  // namespace
}  // namespace penstock::engine
