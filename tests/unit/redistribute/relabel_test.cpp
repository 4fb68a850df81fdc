// Relabeling with any cost, against all permutations; and when a search is not worthwhile.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "penstock/error.hpp"
#include "penstock/relabel.hpp"
#include "redistribute_cases.hpp"

namespace penstock {
namespace {

using Cost = std::function<double(std::int32_t, std::int32_t, std::uint64_t)>;

/// W(G_sigma) of the paper, equations 3 and 6.
double total_cost(const Layout& source, const Layout& target, std::span<const std::int32_t> permutation,
                  const Cost& cost) {
  double sum = 0;
  for (const PairVolume& volume : transfer_volumes(source, target))
    sum += cost(volume.source, permutation[static_cast<std::size_t>(volume.target)],
                8 * static_cast<std::uint64_t>(volume.elems));
  return sum;
}

double least_of_all(const Layout& source, const Layout& target, std::int32_t n, const Cost& cost) {
  std::vector<std::int32_t> permutation(static_cast<std::size_t>(n));
  std::iota(permutation.begin(), permutation.end(), 0);
  double least = total_cost(source, target, permutation, cost);
  while (std::next_permutation(permutation.begin(), permutation.end()))
    least = std::min(least, total_cost(source, target, permutation, cost));
  return least;
}

TEST(RelabelCost, EqualsTheCheapestOfAllPermutations) {
  constexpr std::int32_t kRanks = 5;
  std::mt19937 random(21);
  std::uniform_real_distribution<double> number(0.0, 1.0);
  for (int i = 0; i < 60; ++i) {
    const std::vector<std::int64_t> shape = testing_layouts::random_shape(random, 2);
    const Layout source = testing_layouts::random_layout(random, shape, kRanks);
    const Layout target = testing_layouts::random_layout(random, shape, kRanks);
    std::vector<double> latency(kRanks * kRanks), per_byte(kRanks * kRanks), transform(kRanks);
    for (auto* list : {&latency, &per_byte, &transform})
      for (double& each : *list) each = number(random);
    const std::vector<std::int32_t> node{0, 1, 0, 1, 1};
    const std::vector<double> node_latency{1, 20, 30, 2}, node_per_byte{0.1, 1, 2, 0.2};
    const auto at = [](std::int32_t from, std::int32_t to) { return static_cast<std::size_t>(from * kRanks + to); };
    const auto bytes = [](std::uint64_t given) { return static_cast<double>(given); };
    const Cost pairs = [&](std::int32_t from, std::int32_t to, std::uint64_t size) {
      return latency[at(from, to)] + per_byte[at(from, to)] * bytes(size);
    };
    const Cost nodes = [&](std::int32_t from, std::int32_t to, std::uint64_t size) {
      if (from == to) return 0.0;
      const auto link =
          static_cast<std::size_t>(2 * node[static_cast<std::size_t>(from)] + node[static_cast<std::size_t>(to)]);
      return node_latency[link] + node_per_byte[link] * bytes(size);
    };
    const Cost any = [&](std::int32_t from, std::int32_t to, std::uint64_t size) {
      return std::sqrt(bytes(size)) * std::abs(from - to);
    };
    const Cost transformed = [&](std::int32_t from, std::int32_t to, std::uint64_t size) {
      return (from == to ? 0.0 : bytes(size)) + transform[static_cast<std::size_t>(to)] * bytes(size);
    };
    const std::pair<TransferCost, Cost> cases[] = {{TransferCost::pairs(latency, per_byte), pairs},
                                                   {TransferCost::nodes(node, node_latency, node_per_byte), nodes},
                                                   {TransferCost::function(any), any},
                                                   {TransferCost().with_transformation(transform), transformed}};
    for (const auto& [cost, reference] : cases) {
      const Relabeling found = relabel(source, target, {.element_bytes = 8, .ranks = kRanks, .cost = cost});
      const double least = least_of_all(source, target, kRanks, reference);
      EXPECT_NEAR(found.cost_after, least, 1e-9 * (1 + least)) << source.serialize() << " -> " << target.serialize();
      EXPECT_NEAR(total_cost(source, target, found.permutation, reference), found.cost_after, 1e-9 * (1 + least));
      EXPECT_LE(found.cost_after, found.cost_before);
    }
  }
}

TEST(RelabelCost, WrongCostsAreErrors) {
  const Layout layout = Layout::even({12}, 3);
  EXPECT_THROW(TransferCost::pairs({1, 2, 3}, {1, 2, 3}), Error);
  EXPECT_THROW(TransferCost::pairs({1, 2, 3, 4}, {1}), Error);
  EXPECT_THROW(TransferCost::nodes({0, 2}, {1}, {1}), Error);
  EXPECT_THROW(TransferCost::pairs({1}, {1}).with_transformation({1, 2}), Error);
  EXPECT_THROW(relabel(layout, layout, {.cost = TransferCost::pairs({1}, {1})}), Error);
  const auto bad = [](std::int32_t, std::int32_t, std::uint64_t) { return std::nan(""); };
  EXPECT_THROW(relabel(layout, layout, {.cost = TransferCost::function(bad)}), Error);
}

/// What stays on its rank if rank permutation[r] takes the parts of rank r in each relabeled layout.
std::uint64_t moved_bytes(std::span<const RelabelTransfer> transfers, std::span<const std::int32_t> permutation) {
  std::uint64_t sum = 0;
  for (const RelabelTransfer& each : transfers) {
    const bool is_target = each.side == RelabeledSide::target;
    const Layout source = is_target ? each.source : each.source.relabeled(permutation);
    const Layout target = is_target ? each.target.relabeled(permutation) : each.target;
    for (const PairVolume& volume : transfer_volumes(source, target, *each.op))
      if (volume.source != volume.target) sum += static_cast<std::uint64_t>(volume.elems) * *each.element_bytes;
  }
  return sum;
}

std::vector<std::int32_t> shift(std::int32_t n, std::int32_t by) {
  std::vector<std::int32_t> permutation(static_cast<std::size_t>(n));
  for (std::int32_t rank = 0; rank < n; ++rank) permutation[static_cast<std::size_t>(rank)] = (rank + by) % n;
  return permutation;
}

TEST(RelabelJointly, TheSumIsTheLeastOfAllPermutations) {
  constexpr std::int32_t kRanks = 5;
  std::mt19937 random(7);
  for (int i = 0; i < 60; ++i) {
    std::vector<RelabelTransfer> transfers;
    for (std::size_t count = 1 + random() % 3; count > 0; --count) {
      const std::vector<std::int64_t> shape = testing_layouts::random_shape(random, 2);
      const MatrixOp op = random() % 2 == 0 ? MatrixOp::none : MatrixOp::transpose;
      const std::vector<std::int64_t> target_shape =
          op == MatrixOp::none ? shape : std::vector<std::int64_t>{shape[1], shape[0]};
      transfers.push_back({testing_layouts::random_layout(random, shape, kRanks),
                           testing_layouts::random_layout(random, target_shape, kRanks),
                           random() % 2 == 0 ? RelabeledSide::target : RelabeledSide::source,
                           random() % 2 == 0 ? 4 : 12, op});
    }
    const Relabeling found = relabel(transfers, {.ranks = kRanks});
    std::vector<std::int32_t> permutation = shift(kRanks, 0);
    EXPECT_EQ(found.bytes_before, moved_bytes(transfers, permutation));
    std::uint64_t least = found.bytes_before;
    do least = std::min(least, moved_bytes(transfers, permutation));
    while (std::next_permutation(permutation.begin(), permutation.end()));
    EXPECT_EQ(found.bytes_after, least) << "case " << i;
    EXPECT_EQ(moved_bytes(transfers, found.permutation), least) << "case " << i;
  }
}

TEST(RelabelJointly, PackagesBetweenTwoRanksAreOneForTheCost) {
  constexpr std::int32_t kRanks = 4;
  std::mt19937 random(3);
  for (int i = 0; i < 40; ++i) {
    std::vector<RelabelTransfer> transfers;
    for (int k = 0; k < 2; ++k) {
      const std::vector<std::int64_t> shape = testing_layouts::random_shape(random, 2);
      transfers.push_back({testing_layouts::random_layout(random, shape, kRanks),
                           testing_layouts::random_layout(random, shape, kRanks)});
    }
    const Cost cost = [&](std::int32_t from, std::int32_t to, std::uint64_t bytes) {
      return std::sqrt(static_cast<double>(bytes)) * std::abs(from - to);
    };
    const auto total = [&](std::span<const std::int32_t> permutation) {
      std::map<std::pair<std::int32_t, std::int32_t>, std::uint64_t> packages;
      for (const RelabelTransfer& each : transfers)
        for (const PairVolume& volume : transfer_volumes(each.source, each.target))
          packages[{volume.source, permutation[static_cast<std::size_t>(volume.target)]}] +=
              8 * static_cast<std::uint64_t>(volume.elems);
      double sum = 0;
      for (const auto& [pair, bytes] : packages) sum += cost(pair.first, pair.second, bytes);
      return sum;
    };
    const Relabeling found =
        relabel(transfers, {.element_bytes = 8, .ranks = kRanks, .cost = TransferCost::function(cost)});
    std::vector<std::int32_t> permutation = shift(kRanks, 0);
    double least = total(permutation);
    EXPECT_NEAR(found.cost_before, least, 1e-9 * (1 + least));
    do least = std::min(least, total(permutation));
    while (std::next_permutation(permutation.begin(), permutation.end()));
    EXPECT_NEAR(found.cost_after, least, 1e-9 * (1 + least));
    EXPECT_NEAR(total(found.permutation), least, 1e-9 * (1 + least));
  }
}

TEST(RelabelJointly, FewPairsOfManyRanks) {
  constexpr std::int32_t kRanks = 300;
  const Layout rows = Layout::block_cyclic({kRanks, 2}, {1, 2}, {kRanks, 1});
  const Layout shifted = rows.relabeled(shift(kRanks, 7));
  const RelabelTransfer there{.source = rows, .target = shifted};
  const RelabelTransfer back{.source = shifted, .target = rows, .side = RelabeledSide::source};
  const RelabelTransfer other{.source = rows, .target = rows.relabeled(shift(kRanks, 9))};
  const Relabeling both = relabel(std::vector{there, back}, {});
  EXPECT_EQ(both.permutation, shift(kRanks, kRanks - 7));
  EXPECT_EQ(both.bytes_before, 2 * 2 * kRanks);
  EXPECT_EQ(both.bytes_after, 0);
  // Two against one: the third pays for it.
  const Relabeling three = relabel(std::vector{there, other, back}, {});
  EXPECT_EQ(three.permutation, both.permutation);
  EXPECT_EQ(three.bytes_after, 2 * kRanks);
}

TEST(RelabelJointly, WhatCannotBeRelabeledIsAnErrorOrSaysSo) {
  EXPECT_EQ(relabel(std::span<const RelabelTransfer>(), {.ranks = 3}).permutation, shift(3, 0));
  const Layout rows = Layout::block_cyclic({4, 2}, {1, 2}, {4, 1});
  const std::vector back{RelabelTransfer{.source = rows, .target = rows, .side = RelabeledSide::source}};
  const TransferCost cost = TransferCost::function([](auto, auto, auto) { return 1.0; });
  try {
    relabel(back, {.cost = cost});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("expected relabeled targets, or no cost"), std::string::npos);
  }
  EXPECT_THROW(relabel(rows, rows, {.element_bytes = 0}), Error);
  const Layout copies =
      Layout::replicated({rows.on_ranks(std::vector{0, 1, 2, 3}, 8), rows.on_ranks(std::vector{4, 5, 6, 7}, 8)});
  const std::vector mixed{RelabelTransfer{.source = rows, .target = rows.relabeled(shift(4, 2))},
                          RelabelTransfer{.source = rows, .target = copies}};
  EXPECT_NE(relabel(mixed, {}).skipped.find("replicated"), std::string::npos);
  EXPECT_EQ(relabel(mixed, {}).permutation, shift(8, 0));
}

TEST(RelabelPolicies, WhatCannotPayIsSkippedAndSaysSo) {
  // Every rank has data for every other, and a relabeling gains little.
  const Layout source = Layout::block_cyclic({1 << 12, 1 << 12}, {1, 1}, {16, 16});
  const Layout target = Layout::block_cyclic({1 << 12, 1 << 12}, {5, 7}, {16, 16});
  RelabelOptions options{.element_bytes = 8, .policy = RelabelPolicy::worthwhile, .expected_runs = 1e-3};
  const Relabeling skipped = relabel(source, target, options);
  EXPECT_NE(skipped.skipped.find("256 ranks"), std::string::npos) << skipped.skipped;
  EXPECT_EQ(skipped.bytes_after, skipped.bytes_before);
  options.expected_runs = 1e9;
  const Relabeling often = relabel(source, target, options);
  EXPECT_EQ(often.skipped, "");
  EXPECT_LE(often.bytes_after, often.bytes_before);
  options.policy = RelabelPolicy::never;
  EXPECT_EQ(relabel(source, target, options).skipped, "not asked for");
  // A shift is worthwhile at any size: it has few volumes.
  std::vector<std::int32_t> shift(4096);
  for (std::size_t r = 0; r < shift.size(); ++r) shift[r] = static_cast<std::int32_t>((r + 1) % shift.size());
  const Layout line = Layout::block_cyclic({8192}, {1}, {4096});
  options.policy = RelabelPolicy::worthwhile;
  EXPECT_EQ(relabel(line, line.relabeled(shift), options).bytes_after, 0u);
}

}  // namespace
}  // namespace penstock
