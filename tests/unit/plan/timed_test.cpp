#include "timed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "penstock/collective.hpp"
#include "penstock/error.hpp"
#include "penstock/split_model.hpp"
#include "plan/split.hpp"

namespace penstock::plan {
namespace {

constexpr std::uint64_t kBytes = 8;
constexpr double kComputation = 4.5;
constexpr int kProgressCores[] = {0, 1, 3, 16};

struct Case {
  CollectiveKind kind;
  LevelOrder order;
};
constexpr Case kCases[] = {{CollectiveKind::bcast, LevelOrder::from_root},
                           {CollectiveKind::scatter, LevelOrder::from_root},
                           {CollectiveKind::reduce, LevelOrder::to_root},
                           {CollectiveKind::gather, LevelOrder::to_root},
                           {CollectiveKind::allreduce, LevelOrder::to_root_and_back}};

std::vector<Plan> plan_all(const Collective& collective, int ranks) {
  std::vector<Plan> plans;
  for (int rank = 0; rank < ranks; ++rank)
    plans.push_back(plan_collective(
        {.rank = rank, .node_of_rank = std::vector<std::int32_t>(static_cast<std::size_t>(ranks))}, collective));
  return plans;
}

double relative_to_a_block(Lane, std::uint64_t bytes) { return static_cast<double>(bytes) / kBytes; }

double makespan(const std::vector<Plan>& plans, const std::vector<std::int32_t>& nodes, const Timing& timing) {
  return makespans(plans, nodes, std::array{timing})[0];
}
double makespan(const std::vector<Plan>& plans, const Timing& timing) {
  return makespan(plans, std::vector<std::int32_t>(plans.size()), timing);
}

class TimedTrees : public testing::TestWithParam<Case> {
 protected:
  // Compares equations 4 and 5 with the simulated plans, for all S and several P.
  void agree(const std::string& algorithm, int radix, int ranks) {
    const auto [kind, order] = GetParam();
    const SplitModel model{.kind = kind, .radix = radix};
    std::vector<Plan> plans =
        plan_all({.kind = kind, .count = kBytes, .algorithm = algorithm, .split = 0, .radix = radix}, ranks);
    ASSERT_EQ(plans[0].tree_levels, tree_height(ranks, radix));
    std::vector<Timing> timings;
    for (const int progress : kProgressCores) {
      Timing timing{.order = order, .progress_cores = progress, .edge_cost = relative_to_a_block};
      timings.push_back(timing);
      timing.levels_in_sequence = true;
      timings.push_back(timing);
      timing.computation = kComputation;
      timings.push_back(timing);
    }
    for (int split = 0; split <= plans[0].tree_levels; ++split) {
      for (Plan& plan : plans) split_tree(plan, split);
      const std::vector<double> times =
          makespans(plans, std::vector<std::int32_t>(static_cast<std::size_t>(ranks)), timings);
      for (std::size_t i = 0; i < times.size(); i += 3) {
        const SplitCores cores{ranks, timings[i].progress_cores};
        const std::string where = std::string(name(kind)) + "/" + algorithm + ", " + std::to_string(ranks) +
                                  " ranks, S " + std::to_string(split) + ", P " + std::to_string(cores.progress);
        ASSERT_EQ(times[i + 1], communication_time(model, cores, split)) << where;
        ASSERT_EQ(times[i + 2], overlapped_time(model, cores, split, kComputation)) << where;
        ASSERT_LE(times[i], times[i + 1]) << where << ": levels that need not follow each other";
      }
    }
  }
};

// All numbers of ranks up to 128 for the operations of equation 4, and a selection for the others.
std::vector<int> numbers_of_ranks(CollectiveKind kind) {
  std::vector<int> numbers;
  const bool is_of_the_paper = kind == CollectiveKind::bcast || kind == CollectiveKind::reduce;
  for (int ranks = 2; ranks <= (is_of_the_paper ? 128 : 24); ++ranks) numbers.push_back(ranks);
  if (!is_of_the_paper) numbers.insert(numbers.end(), {31, 32, 33, 47, 63, 64, 65, 100, 127, 128});
  return numbers;
}

TEST_P(TimedTrees, OfMessagesTakeWhatTheModelSays) {
  for (const int ranks : numbers_of_ranks(GetParam().kind)) agree("binomial", 2, ranks);
}
TEST_P(TimedTrees, OfSharedTasksTakeWhatTheModelSays) {
  for (const int ranks : numbers_of_ranks(GetParam().kind)) agree("tree", 2, ranks);
}
TEST_P(TimedTrees, OfAnyRadixTakeWhatTheModelSays) {
  for (const int radix : {3, 8})
    for (int ranks = 2; ranks <= 30; ++ranks) agree("tree", radix, ranks);
}

INSTANTIATE_TEST_SUITE_P(Timed, TimedTrees, testing::ValuesIn(kCases),
                         [](const auto& instance) { return std::string(name(instance.param.kind)); });

TEST(Timed, AMessageIsTheWorkOfItsReceiver) {
  std::vector<Plan> plans = plan_all({.kind = CollectiveKind::bcast, .count = kBytes, .algorithm = "chain"}, 5);
  EXPECT_EQ(makespan(plans, {}), 4);
  EXPECT_EQ(makespan(plans, {.progress_cores = 3}), 4) << "each waits for the one before";
  EXPECT_EQ(makespan(plans, {.edge_cost = [](Lane lane, auto) { return lane == Lane::progress ? 2.5 : 1; }}), 10);
  plans = plan_all({.kind = CollectiveKind::gather, .count = kBytes, .algorithm = "linear"}, 5);
  EXPECT_EQ(makespan(plans, {}), 4);
  EXPECT_EQ(makespan(plans, {.progress_cores = 2}), 2);
  EXPECT_EQ(makespan(plans, {.progress_cores = 0, .computation = 7}), 7 + 4) << "nothing runs behind the computation";
  EXPECT_EQ(makespan(plans, {.computation = 7}), 7);
}

TEST(Timed, EachNodeHasItsOwnCores) {
  const std::vector<Plan> plans =
      plan_all({.kind = CollectiveKind::scatter, .count = kBytes, .algorithm = "linear"}, 9);
  const std::vector<std::int32_t> nodes{0, 1, 1, 1, 1, 1, 1, 2, 2};
  EXPECT_EQ(makespan(plans, nodes, {}), 6) << "the work of the receivers of node 1";
  EXPECT_EQ(makespan(plans, nodes, {.progress_cores = 2}), 3);
}

// The divided policy as the engine runs it: first the workers, then all cores.
TEST(Timed, DividedWorkTakesWhatTheModelSays) {
  const SplitModel model{.bytes = 1000, .segment_bytes = 1};
  const std::vector<Plan> plans =
      plan_all({.kind = CollectiveKind::reduce, .count = 1000, .algorithm = "divided", .segment_bytes = 1}, 12);
  for (const int progress : {1, 2, 4})
    for (const double computation : {0.0, 1000.0, 5000.0, 30000.0}) {
      const Timing timing{.waiting_helps = true,
                          .progress_cores = progress,
                          .computation = computation,
                          .edge_cost = [](Lane, std::uint64_t bytes) { return static_cast<double>(bytes); }};
      const double simulated = makespan(plans, timing);
      const double expected = divided_time(model, {12, progress}, computation);
      EXPECT_GE(simulated, expected) << progress << " cores, computation " << computation;
      EXPECT_LE(simulated, expected + 2 * 11) << "but for the last segment of each core";
    }
}

// Simulates the engine: segments, levels without barriers between them, and threads that help after their computation.
TEST_P(TimedTrees, OnTheEngineTheModelChoosesWell) {
  const auto [kind, order] = GetParam();
  constexpr int kSegments = 16;
  constexpr double kUnit = kSegments * kBytes;
  int points = 0;
  int good = 0;
  for (const int cores : {8, 16, 40})
    for (int ranks = cores / 2; ranks < cores; ranks += cores / 8) {
      std::vector<Plan> plans = plan_all(
          {.kind = kind, .count = kSegments * kBytes, .algorithm = "tree", .segment_bytes = kBytes, .split = 0}, ranks);
      const SplitModel model{.kind = kind, .segment_bytes = 1.0 / kSegments, .waiting_helps = true};
      for (const double ratio : {0.3, 1.0, 3.0}) {
        const double computation = computation_time(computation_on_all_cores(model, cores, ratio), cores, ranks);
        const Timing timing{.order = order,
                            .waiting_helps = true,
                            .progress_cores = cores - ranks,
                            .computation = computation,
                            .edge_cost = [](Lane, std::uint64_t bytes) { return static_cast<double>(bytes) / kUnit; }};
        const SplitPoint point = evaluate_split(model, {ranks, cores - ranks}, computation);
        std::vector<double> times;
        for (int split = 0; split <= plans[0].tree_levels; ++split) {
          for (Plan& plan : plans) split_tree(plan, split);
          times.push_back(makespan(plans, timing));
        }
        const double best = *std::ranges::min_element(times);
        const double chosen = times[static_cast<std::size_t>(point.best_split)];
        EXPECT_LE(chosen, 1.1 * point.best_time()) << cores << " cores, " << ranks << " ranks, ratio " << ratio;
        ++points;
        if (chosen <= 1.05 * best) ++good;
      }
    }
  EXPECT_GE(good, 0.95 * points) << "points at which the chosen S is within 5% of the best one, of " << points;
}

std::string failure(std::vector<Plan> plans) {
  try {
    makespan(plans, {});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::internal);
    return error.message();
  }
  return "no error";
}

TEST(Timed, NamesPlansThatCannotEnd) {
  const Region to{0, 8, Buffer::output};
  const Region from{0, 8, Buffer::input};
  PlanBuilder alone{"test", 0, 1};
  alone.recv(to, 0, 0);
  EXPECT_NE(failure({std::move(alone).finish(8, 8)}).find("no partner"), std::string::npos);
  PlanBuilder a{"test", 0, 2};
  PlanBuilder b{"test", 1, 2};
  a.send(from, 1, 0, {a.recv(to, 1, 0)});
  b.send(from, 0, 0, {b.recv(to, 0, 0)});
  EXPECT_NE(failure({std::move(a).finish(8, 8), std::move(b).finish(8, 8)}).find("deadlock"), std::string::npos);
}

}  // namespace
}  // namespace penstock::plan
