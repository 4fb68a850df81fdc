// Choices on one node by the measured times of its rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/choose/row_times.hpp"
#include "penstock/choice_by_cost.hpp"
#include "penstock/collective.hpp"

namespace penstock {
namespace {

Team one_node(int ranks) {
  Team team;
  team.node_of_rank.assign(static_cast<std::size_t>(ranks), 0);
  return team;
}

Collective sized(CollectiveKind kind, std::uint64_t bytes) {
  return {.kind = kind, .count = bytes / 4, .dtype = DType::float32};
}

std::string_view chosen(const Team& team, CollectiveKind kind, std::uint64_t bytes) {
  return choose(team, sized(kind, bytes)).algorithm->name;
}

/// A nanosecond per byte, and for a row of alltoall as many times more or less.
Team measured_team(int ranks, const std::map<std::string_view, double>& factors) {
  Team team = one_node(ranks);
  auto times = std::make_shared<std::vector<RowTime>>(collectives::rows_to_measure(team));
  for (RowTime& each : *times) {
    const auto factor = factors.find(each.algorithm->name);
    const bool has_factor = factor != factors.end() && each.algorithm->kind == CollectiveKind::alltoall;
    each.nanoseconds = static_cast<std::uint64_t>(static_cast<double>(each.bytes) * (has_factor ? factor->second : 1));
  }
  team.by_cost = std::make_shared<const ChoiceByCost>(team, times);
  return team;
}

TEST(RowTimes, AreMeasuredOfEachRowThatMayWin) {
  for (const int ranks : {2, 3, 4, 8, 64, 128}) {
    const Team team = one_node(ranks);
    const std::vector<RowTime> rows = collectives::rows_to_measure(team);
    std::map<std::pair<CollectiveKind, std::uint64_t>, std::set<std::string_view>> contests;
    for (const RowTime& each : rows) {
      EXPECT_TRUE((contests[{each.algorithm->kind, each.bytes}].insert(each.algorithm->name).second));
      EXPECT_TRUE(each.algorithm->fits(team, sized(each.algorithm->kind, each.bytes)));
    }
    EXPECT_TRUE((std::ranges::is_sorted(rows, {}, &RowTime::bytes)));
    for (const auto& [contest, names] : contests) {
      const auto& [kind, bytes] = contest;
      EXPECT_TRUE(names.contains(chosen(team, kind, bytes))) << name(kind) << " of " << bytes;
      EXPECT_GE(names.size(), 2u) << name(kind) << " of " << bytes;
    }
    EXPECT_TRUE((contests.contains({CollectiveKind::allreduce, 1 << 20}))) << ranks;
  }
}

TEST(RowTimes, ChooseTheFastest) {
  const Team team = measured_team(2, {{"staged", 0.5}});
  for (std::uint64_t bytes = 16 << 10; bytes <= 2 << 20; bytes *= 2)
    EXPECT_EQ(chosen(team, CollectiveKind::alltoall, bytes), "staged") << bytes;
  const Team other = measured_team(2, {{"pairwise", 0.5}});
  for (std::uint64_t bytes = 16 << 10; bytes <= 2 << 20; bytes *= 2)
    EXPECT_EQ(chosen(other, CollectiveKind::alltoall, bytes), "pairwise") << bytes;
  EXPECT_NE(choose(other, sized(CollectiveKind::alltoall, 1 << 20)).reason.find("measured on such a node"),
            std::string::npos);
}

TEST(RowTimes, KeepTheDefaultWithinTheNoise) {
  const Team without = one_node(2);
  for (const std::string_view row : {"staged", "pairwise", "divided"}) {
    const Team team = measured_team(2, {{row, 0.95}});
    for (std::uint64_t bytes = 16 << 10; bytes <= 2 << 20; bytes *= 2)
      EXPECT_EQ(chosen(team, CollectiveKind::alltoall, bytes), chosen(without, CollectiveKind::alltoall, bytes))
          << row << " at " << bytes;
  }
}

TEST(RowTimes, LeaveOtherLengthsToThresholds) {
  const Team without = one_node(2);
  const Team team = measured_team(2, {{"divided", 0.1}});
  for (const std::uint64_t bytes : {8u, 4096u, 12u << 10, 4u << 20, 64u << 20})
    EXPECT_EQ(chosen(team, CollectiveKind::alltoall, bytes), chosen(without, CollectiveKind::alltoall, bytes)) << bytes;
  EXPECT_EQ(chosen(team, CollectiveKind::alltoall, 16 << 10), "divided");
}

// Time was up, or the file of a job in which it was.
TEST(RowTimes, ThatAreMissingLeaveTheDefault) {
  const Team without = one_node(2);
  Team team = one_node(2);
  auto times = std::make_shared<std::vector<RowTime>>(collectives::rows_to_measure(team));
  for (RowTime& each : *times) each.nanoseconds = each.bytes < 256 << 10 ? 100 : 0;
  team.by_cost = std::make_shared<const ChoiceByCost>(team, times);
  for (std::uint64_t bytes = 16 << 10; bytes <= 16 << 20; bytes *= 2)
    EXPECT_EQ(chosen(team, CollectiveKind::alltoall, bytes), chosen(without, CollectiveKind::alltoall, bytes)) << bytes;
}

TEST(RowTimes, AreInterpolatedByLogarithms) {
  const Algorithm* row = choose(one_node(2), sized(CollectiveKind::alltoall, 64 << 10)).algorithm;
  const std::vector<RowTime> times = {{row, 16 << 10, 1000}, {row, 64 << 10, 9000}, {row, 256 << 10, 0}};
  EXPECT_EQ(collectives::interpolated(times, *row, 8 << 10), std::nullopt);
  EXPECT_DOUBLE_EQ(collectives::interpolated(times, *row, 16 << 10).value(), 1e-6);
  EXPECT_DOUBLE_EQ(collectives::interpolated(times, *row, 32 << 10).value(), 3e-6);
  EXPECT_DOUBLE_EQ(collectives::interpolated(times, *row, 64 << 10).value(), 9e-6);
  EXPECT_EQ(collectives::interpolated(times, *row, 128 << 10), std::nullopt);
  const std::vector<RowTime> two(times.begin(), times.begin() + 2);
  EXPECT_DOUBLE_EQ(collectives::interpolated(two, *row, 128 << 10).value(), 18e-6);
  EXPECT_EQ(collectives::interpolated(two, *row, 256 << 10), std::nullopt);
}

}  // namespace
}  // namespace penstock
