#include "penstock/split_model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "penstock/error.hpp"

namespace penstock {
namespace {

constexpr CollectiveKind kTreeKinds[] = {CollectiveKind::bcast, CollectiveKind::reduce, CollectiveKind::gather,
                                         CollectiveKind::scatter, CollectiveKind::allreduce};

SplitAdvice paper_set_up(CollectiveKind kind = CollectiveKind::reduce, int cores = 64, int radix = 2) {
  const SplitModel model{.kind = kind, .radix = radix};
  return advise_ranks(model, cores, computation_on_all_cores(model, cores));
}

// The numbers of ranks at which the best S changes, up to N = cores - 1, and the new S.
std::map<int, int> switching_points(const SplitAdvice& advice) {
  std::map<int, int> found;
  int last = -1;
  for (const SplitPoint& point : advice.points)
    if (point.cores.progress > 0 && point.best_split != last) found[point.cores.ranks] = last = point.best_split;
  return found;
}

template <typename Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.message();
  }
  return "no error";
}

// See the split-tree paper, sections 4 and 6.
TEST(SplitModel, HasTheSwitchingPointsOfThePaper) {
  for (const CollectiveKind kind : {CollectiveKind::reduce, CollectiveKind::bcast, CollectiveKind::allreduce}) {
    const SplitAdvice advice = paper_set_up(kind);
    EXPECT_EQ(switching_points(advice), (std::map<int, int>{{1, 0}, {52, 1}, {58, 2}, {62, 3}})) << name(kind);
    const SplitPoint& best = advice.points[advice.best];
    EXPECT_EQ(best.cores.ranks, 51);
    EXPECT_EQ(best.best_split, 0);
    const double ends = kind == CollectiveKind::allreduce ? 2 : 1;
    EXPECT_DOUBLE_EQ(best.best_time(), ends * 6 * 64 / 51.0);
  }
  EXPECT_NEAR(paper_set_up().points[50].best_time(), 7.529, 0.0005);
}

TEST(SplitModel, HasTheTimesOfThePaperAtItsTextbookPoints) {
  const SplitModel unit;
  EXPECT_EQ(blocking_time(unit, 64), 6);
  EXPECT_EQ(blocking_time(unit, 16), 4);
  EXPECT_EQ(communication_time(unit, {16, 1}, 0), 15) << "figure 1, folded on one core";
  EXPECT_EQ(communication_time(unit, {16, 1}, 1), 1 + 7) << "twice as fast with the last step on application cores";
  EXPECT_EQ(communication_time(unit, {63, 1}, 0), 62);
  EXPECT_EQ(computation_time(6, 64, 32), 12) << "fewer cores compute longer";
}

// Compares with an edge-by-edge walk of the tree.
TEST(SplitModel, CountsTheEdgesOfEveryTree) {
  for (const int radix : {2, 3, 4, 7})
    for (int ranks = 1; ranks <= 130; ++ranks) {
      const int height = tree_height(ranks, radix);
      std::vector<std::int64_t> edges(static_cast<std::size_t>(height));
      for (int index = 1; index < ranks; ++index) {
        int level = height;
        for (int rest = index; rest % radix == 0; rest /= radix) --level;
        ++edges[static_cast<std::size_t>(level - 1)];
      }
      for (int level = 1; level <= height; ++level)
        EXPECT_EQ(tree_edges(ranks, level, radix), edges[static_cast<std::size_t>(level - 1)])
            << ranks << " ranks, radix " << radix << ", level " << level;
      EXPECT_EQ(std::accumulate(edges.begin(), edges.end(), std::int64_t{0}), ranks - 1);
    }
}

// The printed equation 3 is exact for powers of two.
TEST(SplitModel, AgreesWithThePrintedEquationForPowersOfTwo) {
  for (int height = 1; height <= 7; ++height)
    for (int level = 1; level <= height; ++level) EXPECT_EQ(tree_edges(1 << height, level), 1 << (level - 1));
}

TEST(SplitModel, FoldsEachLevelOnTheCoresOfCommunication) {
  const SplitModel unit;
  for (int ranks = 1; ranks <= 128; ++ranks)
    for (const int progress : {1, 2, 3, 7, 13, 64, 200}) {
      const int height = tree_height(ranks);
      for (int split = 0; split <= height; ++split) {
        std::int64_t expected = split;
        for (int level = 1; level <= height - split; ++level)
          expected += (tree_edges(ranks, level) + progress - 1) / progress;
        EXPECT_EQ(communication_time(unit, {ranks, progress}, split), static_cast<double>(expected))
            << ranks << " ranks, P = " << progress << ", S = " << split;
      }
    }
}

TEST(SplitModel, WeighsTheEdgesOfGrowingBuffersByTheirSubtrees) {
  const SplitModel gather{.kind = CollectiveKind::gather};
  EXPECT_EQ(blocking_time(gather, 8), 4 + 2 + 1);
  EXPECT_EQ(blocking_time(gather, 5), 1 + 2 + 1) << "the root's first child has no subtree";
  EXPECT_EQ(communication_time(gather, {8, 1}, 0), 4 + 2 * 2 + 4 * 1);
  EXPECT_EQ(communication_time(gather, {7, 1}, 0), 3 + (2 + 1) + 3 * 1);
  EXPECT_EQ(communication_time(gather, {8, 2}, 1), 4 + 2 + 1);
  EXPECT_EQ(communication_time(gather, {8, 3}, 0), 4 + 2 + 2) << "4 edges of weight 1 on 3 cores";
  EXPECT_EQ(blocking_time({.kind = CollectiveKind::scatter}, 64), 63);
  const SplitAdvice advice = paper_set_up(CollectiveKind::gather);
  EXPECT_EQ(switching_points(advice), (std::map<int, int>{{1, 0}, {59, 1}, {61, 2}, {62, 3}, {63, 4}}));
  EXPECT_EQ(advice.points[advice.best].cores.ranks, 60);
}

TEST(SplitModel, AKnomialTreeIsFlatter) {
  EXPECT_EQ(tree_height(64, 4), 3);
  EXPECT_EQ(blocking_time({.kind = CollectiveKind::bcast, .radix = 4}, 64), 3) << "children fetch at the same time";
  EXPECT_EQ(blocking_time({.kind = CollectiveKind::reduce, .radix = 4}, 64), 9) << "sums follow each other";
  EXPECT_EQ(blocking_time({.kind = CollectiveKind::allreduce, .radix = 4}, 64), 12);
  EXPECT_EQ(blocking_time({.kind = CollectiveKind::reduce, .radix = 64}, 64), 63) << "a flat tree";
  EXPECT_EQ(communication_time({.kind = CollectiveKind::bcast, .radix = 4}, {64, 1}, 0), 63);
  EXPECT_EQ(communication_time({.kind = CollectiveKind::bcast, .radix = 4}, {64, 48}, 0), 1 + 1 + 1);
  EXPECT_EQ(communication_time({.kind = CollectiveKind::reduce, .radix = 4}, {64, 16}, 0), 3 + 3 + 3);
}

TEST(SplitModel, NeverContradictsItself) {
  for (const CollectiveKind kind : kTreeKinds)
    for (const int radix : {2, 3, 8})
      for (int ranks = 1; ranks <= 70; ++ranks)
        for (const int progress : {0, 1, 2, 5, 40})
          for (const double computation : {0.0, 0.7, 6.0, 500.0}) {
            const SplitModel model{.kind = kind, .radix = radix};
            const SplitPoint point = evaluate_split(model, {ranks, progress}, computation);
            const std::string where = std::string(name(kind)) + ", radix " + std::to_string(radix) + ", N " +
                                      std::to_string(ranks) + ", P " + std::to_string(progress);
            ASSERT_EQ(point.overlapped.size(), static_cast<std::size_t>(tree_height(ranks, radix)) + 1) << where;
            EXPECT_EQ(point.best_time(), *std::ranges::min_element(point.overlapped)) << where;
            for (std::size_t split = 0; split < point.overlapped.size(); ++split) {
              EXPECT_GE(point.communication[split], 0) << where;
              EXPECT_GE(point.overlapped[split], std::max(computation, point.communication[split])) << where;
              EXPECT_LE(point.overlapped[split], computation + point.communication[split]) << where;
              if (progress == 0) {
                EXPECT_EQ(point.communication[split], point.blocking) << where;
              }
            }
            EXPECT_DOUBLE_EQ(point.communication.back(), point.blocking)
                << where << ": all levels on application cores";
            EXPECT_GE(point.divided, computation) << where;
            const int beyond = tree_height(ranks, radix) + 9;
            EXPECT_EQ(overlapped_time(model, {ranks, progress}, beyond, computation), point.overlapped.back()) << where;
            EXPECT_EQ(communication_time(model, {ranks, progress}, -3), point.communication.front()) << where;
          }
}

TEST(SplitModel, WithoutCoresOfCommunicationEverythingRunsOnTheApplication) {
  EXPECT_EQ(best_split({}, {64, 0}), 6);
  EXPECT_EQ(evaluate_split({}, {64, 0}, 6).best_time(), 12);
  EXPECT_EQ(best_split({}, {1, 0}), 0);
}

TEST(SplitModel, TheBestSplitDependsOnTheComputation) {
  EXPECT_EQ(best_split({}, {57, 7}), 1);
  EXPECT_EQ(best_split({}, {60, 4}), 2);
  EXPECT_EQ(best_split({}, {62, 2}), 3);
  EXPECT_EQ(best_split({}, {62, 2}, 10), 0) << "ample computation hides all of it";
  EXPECT_GT(best_split({}, {62, 2}, 0.01), 3) << "nothing to hide behind";
}

TEST(SplitModel, MeasuredCostsMoveTheSwitchingPoints) {
  const StepCosts slow_progress{.application = {1e-6, 1e-10}, .progress = {4e-6, 4e-10}};
  const SplitModel model{.bytes = 2 << 20, .costs = slow_progress};
  EXPECT_DOUBLE_EQ(blocking_time(model, 64), 6 * (1e-6 + 1e-10 * (2 << 20)));
  EXPECT_DOUBLE_EQ(communication_time(model, {16, 1}, 1), 1e-6 + 1e-10 * (2 << 20) + 7 * (4e-6 + 4e-10 * (2 << 20)));
  EXPECT_GT(best_split(model, {51, 13}), best_split({}, {51, 13}));
  // Latency counts per message, so it matters more for the many short messages near the leaves.
  const SplitModel latency{.kind = CollectiveKind::gather, .costs = {{1, 0}, {1, 0}}};
  EXPECT_EQ(blocking_time(latency, 64), 6);
}

TEST(SplitModel, DividedWorkGoesBehindTheComputationAndTheRestToAllCores) {
  const SplitModel unit;
  EXPECT_DOUBLE_EQ(divided_time(unit, {16, 1}, 0), 15 / 17.0);
  EXPECT_DOUBLE_EQ(divided_time(unit, {16, 1}, 5), 5 + 10 / 17.0);
  EXPECT_DOUBLE_EQ(divided_time(unit, {16, 3}, 5), 5) << "15 edges, 3 cores, 5 units each";
  EXPECT_DOUBLE_EQ(divided_time(unit, {16, 0}, 5), 5 + 15 / 16.0);
  EXPECT_DOUBLE_EQ(divided_time({.kind = CollectiveKind::allreduce}, {16, 1}, 0), 30 / 17.0);
  EXPECT_DOUBLE_EQ(divided_time({.kind = CollectiveKind::gather}, {16, 1}, 0), 15 / 17.0) << "each block moves once";
  EXPECT_DOUBLE_EQ(divided_time(unit, {1, 3}, 5), 5);
  // One core sums each of the four segments: a segment is the smallest unit of work.
  EXPECT_DOUBLE_EQ(divided_time({.bytes = 4, .segment_bytes = 1}, {16, 0}, 0), 15);
  EXPECT_DOUBLE_EQ(divided_time({.kind = CollectiveKind::bcast, .bytes = 4, .segment_bytes = 1}, {16, 0}, 0),
                   60 / 16.0);
  const SplitModel measured{.bytes = 8, .segment_bytes = 2, .costs = {{10, 1}, {20, 2}}};
  EXPECT_DOUBLE_EQ(divided_time(measured, {2, 1}, 84), 84 + 12) << "half a segment is left, one core takes it";
  EXPECT_DOUBLE_EQ(divided_time(measured, {2, 1}, 96), 96);
  const SplitPoint point = evaluate_split(unit, {60, 4}, 6.4);
  EXPECT_TRUE(point.prefers_divided());
  EXPECT_FALSE(evaluate_split(unit, {51, 13}, 7.6).prefers_divided()) << "both have vanished";
}

TEST(SplitModel, WaitingCoresTakeWhatIsLeft) {
  SplitModel whole{.waiting_helps = true};
  EXPECT_EQ(overlapped_time(whole, {16, 1}, 0, 8), 8 + 3) << "8 edges fit behind the computation, 3 levels are left";
  EXPECT_EQ(overlapped_time(whole, {16, 1}, 0, 100), 100);
  EXPECT_EQ(overlapped_time(whole, {16, 1}, 4, 8), 8 + 4) << "as in the paper";
  SplitModel segmented = whole;
  segmented.segment_bytes = 1.0 / 15;
  EXPECT_NEAR(overlapped_time(segmented, {16, 0}, 0, 8), 8 + (8 + 4 + 2 + 1) / 15.0, 1e-9) << "each level by all cores";
  EXPECT_EQ(blocking_time(segmented, 16), 4);
  for (const CollectiveKind kind : kTreeKinds)
    for (const int radix : {2, 4})
      for (int ranks = 2; ranks <= 66; ++ranks)
        for (const int progress : {1, 3, 16})
          for (const double computation : {0.0, 2.3, 30.0}) {
            const SplitModel alone{.kind = kind, .radix = radix};
            SplitModel helped = alone;
            helped.waiting_helps = true;
            const SplitPoint point = evaluate_split(helped, {ranks, progress}, computation);
            for (std::size_t split = 0; split < point.overlapped.size(); ++split) {
              const std::string where = std::string(name(kind)) + ", radix " + std::to_string(radix) + ", N " +
                                        std::to_string(ranks) + ", P " + std::to_string(progress) + ", S " +
                                        std::to_string(split) + ", computation " + std::to_string(computation);
              EXPECT_GE(point.overlapped[split], computation) << where;
              EXPECT_LE(point.overlapped[split],
                        overlapped_time(alone, {ranks, progress}, static_cast<int>(split), computation) + 1e-9)
                  << where << ": help makes it no slower";
            }
          }
}

TEST(SplitModel, AdvisesMoreRanksForMoreComputation) {
  int last = 0;
  for (const double ratio : {0.01, 0.1, 1.0, 10.0, 100.0}) {
    const SplitAdvice advice = advise_ranks({}, 64, 6 * ratio);
    ASSERT_EQ(advice.points.size(), 64u);
    const SplitPoint& best = advice.points[advice.best];
    for (const SplitPoint& point : advice.points) EXPECT_LE(best.best_time(), point.best_time()) << ratio;
    EXPECT_GE(best.cores.ranks, last) << ratio;
    last = best.cores.ranks;
  }
  EXPECT_EQ(last, 64) << "a core of communication would cost more than it hides";
}

TEST(SplitModel, RejectsWhatCannotBe) {
  const auto cases = std::map<std::string, std::string>{
      {"there are 1 cores; expected at least 2", message_of([] { advise_ranks({}, 1, 1); })},
      {"at most 16384", message_of([] { advise_ranks({}, 1 << 20, 1); })},
      {"op is allgather; expected", message_of([] { blocking_time({.kind = CollectiveKind::allgather}, 4); })},
      {"op is barrier; expected", message_of([] {
         divided_time({.kind = CollectiveKind::barrier}, {4, 1}, 1);
       })},
      {"radix is 1; expected at least 2", message_of([] {
         best_split({.radix = 1}, {4, 1});
       })},
      {"ratio is 0.0", message_of([] {
         best_split({}, {4, 1}, 0);
       })},
      {"ratio is -1.0", message_of([] {
         best_split({}, {4, 1}, -1);
       })},
      {"ratio is nan", message_of([] {
         best_split({}, {4, 1}, std::nan(""));
       })},
      {"there are 0 ranks", message_of([] {
         evaluate_split({}, {0, 1}, 1);
       })},
      {"there are -1 communication cores", message_of([] {
         communication_time({}, {4, -1}, 0);
       })},
      {"the computation is -1", message_of([] {
         overlapped_time({}, {4, 1}, 0, -1);
       })},
      {"the computation is inf", message_of([] { advise_ranks({}, 4, std::numeric_limits<double>::infinity()); })},
      {"latency is -1", message_of([] {
         blocking_time({.costs = {{-1, 0}, {0, 1}}}, 4);
       })},
      {"bytes is -8", message_of([] { blocking_time({.bytes = -8}, 4); })},
      {"level is 3; expected 1 to 2", message_of([] { tree_edges(4, 3); })},
  };
  for (const auto& [expected, given] : cases) EXPECT_NE(given.find(expected), std::string::npos) << given;
}

}  // namespace
}  // namespace penstock
