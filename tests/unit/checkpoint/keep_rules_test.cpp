#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "checkpoint/tiers.hpp"

namespace penstock::checkpoint {
namespace {

constexpr std::uint64_t kSecond = 1'000'000;

/// A version and what its manifest says. Steps ascend, unless a test says otherwise.
struct Saved {
  Version version;
  std::optional<Rating> rating;
};

std::set<std::uint64_t> kept(const std::vector<Saved>& all, const KeepRules& rules) {
  std::set<Version> complete;
  std::map<Version, std::optional<Rating>> ratings;
  for (const Saved& saved : all) {
    complete.insert(saved.version);
    ratings[saved.version] = saved.rating;
  }
  for (const Version& version :
       not_kept(complete, *complete.rbegin(), rules, [&](const Version& version) { return ratings.at(version); })) {
    complete.erase(version);
  }
  std::set<std::uint64_t> steps;
  for (const Version& version : complete) steps.insert(version.step);
  return steps;
}

using Steps = std::set<std::uint64_t>;

std::vector<Saved> with_losses(const std::vector<std::optional<double>>& losses) {
  std::vector<Saved> all;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    all.push_back({{i, 1, i}, Rating{kSecond * (i + 1), losses[i]}});
  }
  return all;
}

TEST(KeepRules, TheBestStayBesideTheNewest) {
  const auto all = with_losses({5, 2, 4, 1, 3, 9, 8});
  EXPECT_EQ(kept(all, {.keep = 1, .keep_best = 2, .best_metric = "loss"}), (Steps{1, 3, 6}));
  EXPECT_EQ(kept(all, {.keep = 2, .keep_best = 2, .best_metric = "loss", .best_is_highest = true}), (Steps{5, 6}));
  EXPECT_EQ(kept(all, {.keep = 1, .keep_every = 4, .keep_best = 1, .best_metric = "loss"}), (Steps{0, 3, 4, 6}));
  EXPECT_EQ(kept(all, {.keep = 0, .keep_best = 1, .best_metric = "loss"}).size(), 7u);
  EXPECT_EQ(kept(all, {.keep = 1, .keep_best = 99, .best_metric = "loss"}).size(), 7u);
}

TEST(KeepRules, OfEquallyGoodOnesTheNewerStaysAndWithoutAMetricNone) {
  EXPECT_EQ(kept(with_losses({2, 2, 2, 7}), {.keep = 1, .keep_best = 1, .best_metric = "loss"}), (Steps{2, 3}));
  EXPECT_EQ(kept(with_losses({{}, 9, {}, {}}), {.keep = 1, .keep_best = 2, .best_metric = "loss"}), (Steps{1, 3}));
}

TEST(KeepRules, TheBestGoesWhenTheRunHasGoneBackBehindItAndPassedIt) {
  std::vector<Saved> all = with_losses({5, 2, 1, 3});
  all.push_back({{1, 1, 9}, Rating{9 * kSecond, 7}});  // supersedes steps 1, 2 and 3
  const KeepRules rules{.keep = 1, .keep_best = 1, .best_metric = "loss"};
  EXPECT_EQ(kept(all, rules), (Steps{0, 1, 2, 3})) << "later steps are the farthest that the run has come";
  all.push_back({{4, 1, 10}, Rating{10 * kSecond, 6}});
  EXPECT_EQ(kept(all, rules), (Steps{0, 4}));
}

TEST(KeepRules, TheYoungStayAndAClockThatWentBackRemovesNothingThatTheOthersKeep) {
  const auto at = [](const std::vector<std::uint64_t>& seconds) {
    std::vector<Saved> all;
    for (std::size_t i = 0; i < seconds.size(); ++i) all.push_back({{i, 1, i}, Rating{kSecond * seconds[i], {}}});
    return all;
  };
  const KeepRules rules{.keep = 2, .keep_younger_s = 100};
  EXPECT_EQ(kept(at({1000, 1050, 1101, 1150, 1200}), rules), (Steps{2, 3, 4})) << "exactly 100 s is not younger";
  EXPECT_EQ(kept(at({1000, 1050, 1101, 1150, 10}), rules), (Steps{0, 1, 2, 3, 4})) << "gone back";
  EXPECT_EQ(kept(at({1000, 1050, 9999999, 1150, 1200}), rules), (Steps{2, 3, 4})) << "wrong for a while";
  EXPECT_EQ(kept(at({1000, 1050, 1101, 1150, 9999999}), rules), (Steps{3, 4})) << "gone ahead: the newest stay";
  EXPECT_EQ(kept(at({0, 1190, 1191, 1192}), rules), (Steps{1, 2, 3})) << "an older Penstock knew no time";
}

TEST(KeepRules, WhatCannotBeReadStays) {
  std::vector<Saved> all = with_losses({5, 2, 4, 1, 3});
  all[0].rating.reset();
  EXPECT_EQ(kept(all, {.keep = 1, .keep_best = 1, .best_metric = "loss"}), (Steps{0, 3, 4}));
  EXPECT_EQ(kept(all, {.keep = 1, .keep_younger_s = 1}), (Steps{0, 4}));
  EXPECT_EQ(kept(all, {.keep = 1}), (Steps{4})) << "nothing needs to be read";
}

}  // namespace
}  // namespace penstock::checkpoint
