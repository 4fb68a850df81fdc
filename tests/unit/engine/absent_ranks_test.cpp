// Ranks of a large node that do not receive, for as long as it takes: they hold cells, but nobody up.
#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "calls.hpp"
#include "engine/failures.hpp"
#include "engine/segment.hpp"
#include "eventually.hpp"
#include "plans.hpp"
#include "ranks.hpp"

namespace penstock::engine {
namespace {

constexpr int kManyRanks = 64;
constexpr int kLastRank = kManyRanks - 1;
constexpr int kAbsentRanks = 40;  // ranks 1 to 40: more than a rank has cells

/// Rank 0 and the last one send each other a number.
std::shared_ptr<const Plan> exchange_of_two_plan(int rank) {
  PlanBuilder builder("test/exchange", rank, kManyRanks);
  if (rank == 0 || rank == kLastRank) {
    builder.send({0, 8, Buffer::input}, kLastRank - rank, 0);
    builder.recv({0, 8, Buffer::output}, kLastRank - rank, 0);
  }
  return std::make_shared<const Plan>(std::move(builder).finish(8, 8));
}

TEST(FailuresForAll, AreKnownUntilOneFarAheadFails) {
  constexpr std::uint64_t kForgets = FailuresForAll::kForgets;
  constexpr std::uint64_t kFar = 10 * kForgets;
  RankSlot slot;
  const auto found = [&](std::uint64_t from, std::uint64_t to) {
    std::vector<std::uint64_t> sequences;
    for (std::uint64_t each = from; each < to; ++each)
      if (FailuresForAll::has(slot, each)) sequences.push_back(each);
    return sequences;
  };
  using Sequences = std::vector<std::uint64_t>;
  EXPECT_EQ(found(0, kFar), Sequences{});
  for (const std::uint64_t each : {16u, 33u, 19u, 32u}) FailuresForAll::add(slot, each);
  EXPECT_EQ(found(0, kFar), (Sequences{16, 19, 32, 33}));  // and no later one of the same words
  FailuresForAll::add(slot, 16 + kForgets);
  EXPECT_EQ(found(0, kFar), (Sequences{16, 19, 32, 33, 16 + kForgets}));
  // Those of the same word that it has completed have not failed.
  const std::uint64_t old = kFar % (kForgets + FailuresForAll::kBlock);
  FailuresForAll::add(slot, kFar + 3);
  FailuresForAll::add(slot, old + 4);
  slot.completed_before = kFar;
  EXPECT_FALSE(FailuresForAll::has(slot, old));
  EXPECT_FALSE(FailuresForAll::has(slot, old + 4));
  EXPECT_FALSE(FailuresForAll::has(slot, kFar));
  EXPECT_TRUE(FailuresForAll::has(slot, kFar + 3));
}

struct AbsentSetting {
  const char* name;
  std::vector<std::int32_t> nodes;
  CalledBy by;
};

class AbsentRanks : public testing::TestWithParam<AbsentSetting> {};

std::vector<std::int32_t> nodes_of_one() {
  std::vector<std::int32_t> nodes(kManyRanks);
  std::iota(nodes.begin(), nodes.end(), 0);
  return nodes;
}

INSTANTIATE_TEST_SUITE_P(, AbsentRanks,
                         testing::Values(AbsentSetting{"one_node", one_node(kManyRanks), CalledBy::start},
                                         AbsentSetting{"nodes_of_one_run", nodes_of_one(), CalledBy::run}),
                         [](const auto& setting) { return std::string(setting.param.name); });

// Rank 0 fails an operation for which many ranks are late. Then it does not call the library either until those that
// wait have the error. Rank 0 and the last one go on before the late ranks come.
TEST_P(AbsentRanks, KeepNoRankFromHearingOfAFailure) {
  ASSERT_GT(kAbsentRanks, static_cast<int>(SegmentLayout::fit(kManyRanks, EngineOptions{}.eager_bytes,
                                                              SegmentLayout::usual_bytes(kManyRanks))
                                               .cells_per_rank +
                                           Segment::kSmallCells));
  std::latch have_error(kLastRank - kAbsentRanks);
  std::latch have_gone_on(2);
  ShortCallCounts counts;
  const auto failure = [&](Engine& engine, const std::shared_ptr<const Plan>& plan, const Bindings& bindings,
                           std::uint64_t signature) {
    return GetParam().by == CalledBy::run ? failure_of_run(engine, plan, bindings, {}, signature, counts)
                                          : failure_of(*engine.start(plan, bindings, {}, signature));
  };
  run_ranks(ranks_of(GetParam().nodes), [&](Engine& engine, int rank) {
    engine.set_timeout(test::kHung);
    const bool is_absent = rank > 0 && rank <= kAbsentRanks;
    if (is_absent) have_gone_on.wait();
    const std::vector<std::uint64_t> in(1, static_cast<std::uint64_t>(rank));
    std::vector<std::uint64_t> out(1);
    const Bindings bindings{bytes_of(in), bytes_of(out)};
    if (rank == 0) {
      engine.fail_next("on purpose");
      have_error.wait();
    } else {
      const auto error = failure(engine, allreduce_plan(rank, kManyRanks, 8), bindings, 1);
      if (!is_absent) have_error.count_down();
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ErrorCode::peer_failed) << error->what();
      EXPECT_EQ(error->rank(), 0) << error->what();
    }
    const auto error = failure(engine, exchange_of_two_plan(rank), bindings, 2);
    EXPECT_FALSE(error) << error->what();
    if (rank > 0 && rank < kLastRank) return have_gone_on.wait();
    EXPECT_EQ(out[0], static_cast<std::uint64_t>(kLastRank - rank));
    have_gone_on.arrive_and_wait();
  });
  EXPECT_EQ(counts.taken > 0, GetParam().by == CalledBy::run);
}

}  // namespace
}  // namespace penstock::engine
