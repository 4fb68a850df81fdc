#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "penstock/error.hpp"
#include "penstock/redistribute.hpp"

namespace penstock {
namespace {

std::int64_t sum_of(std::int32_t n, const std::vector<std::int64_t>& weights,
                    const std::vector<std::int32_t>& columns) {
  std::vector<bool> taken(static_cast<std::size_t>(n), false);
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const auto column = static_cast<std::size_t>(columns[i]);
    EXPECT_FALSE(taken.at(column)) << "column " << column << " twice";
    taken[column] = true;
    sum += weights[i * static_cast<std::size_t>(n) + column];
  }
  return sum;
}

std::int64_t best_of_all(std::int32_t n, const std::vector<std::int64_t>& weights) {
  std::vector<std::int32_t> columns(static_cast<std::size_t>(n));
  std::iota(columns.begin(), columns.end(), 0);
  std::int64_t best = sum_of(n, weights, columns);
  while (std::next_permutation(columns.begin(), columns.end())) best = std::max(best, sum_of(n, weights, columns));
  return best;
}

TEST(Assignment, EqualsTheBestOfAllPermutations) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 700; ++i) {
    const std::int32_t n = 1 + i % 7;
    // Few different values cause ties; many cause long auctions.
    const std::int64_t range = i % 3 == 0 ? 3 : i % 3 == 1 ? 1000 : std::int64_t{1} << 54;
    std::vector<std::int64_t> weights(static_cast<std::size_t>(n * n));
    for (std::int64_t& weight : weights)
      weight = std::uniform_int_distribution<std::int64_t>(i % 2 ? -range : 0, range)(random);
    const std::vector<std::int32_t> columns = assign_max_weight(n, weights);
    ASSERT_EQ(columns.size(), static_cast<std::size_t>(n));
    EXPECT_EQ(sum_of(n, weights, columns), best_of_all(n, weights)) << "n " << n << ", case " << i;
  }
}

TEST(Assignment, FindsHiddenPermutationsOfManyProcesses) {
  std::mt19937_64 random(5);
  for (const std::int32_t n : {100, 500}) {
    const auto size = static_cast<std::size_t>(n);
    std::vector<std::int32_t> hidden(size);
    std::iota(hidden.begin(), hidden.end(), 0);
    std::shuffle(hidden.begin(), hidden.end(), random);
    // Weights u(i) + v(j) - (noise >= 0, zero on the hidden permutation): that permutation is optimal.
    std::vector<std::int64_t> rows(size), columns(size), weights(size * size);
    const auto pick = [&](std::int64_t high) { return std::uniform_int_distribution<std::int64_t>(0, high)(random); };
    for (std::size_t i = 0; i < size; ++i) {
      rows[i] = pick(1'000'000);
      columns[i] = pick(1'000'000);
    }
    for (std::size_t i = 0; i < size; ++i)
      for (std::size_t j = 0; j < size; ++j)
        weights[i * size + j] =
            rows[i] + columns[j] - (static_cast<std::size_t>(hidden[i]) == j ? 0 : 1 + pick(1'000'000));
    EXPECT_EQ(assign_max_weight(n, weights), hidden);
  }
}

TEST(Assignment, PriceWarsEnd) {
  // Three rows compete for two columns; the third column is bad for all. Each bid would gain 1 of 2^40.
  const std::int64_t big = std::int64_t{1} << 40;
  const std::vector<std::int64_t> weights{big, big + 1, 0, big, big + 1, 0, big, big + 1, 1};
  EXPECT_EQ(sum_of(3, weights, assign_max_weight(3, weights)), 2 * big + 2);
}

std::vector<SparseWeight> above_zero(std::int32_t n, const std::vector<std::int64_t>& weights) {
  std::vector<SparseWeight> result;
  for (std::int32_t i = 0; i < n; ++i)
    for (std::int32_t j = 0; j < n; ++j)
      if (const std::int64_t weight = weights[static_cast<std::size_t>(i * n + j)]; weight > 0)
        result.push_back({i, j, weight});
  return result;
}

TEST(Assignment, SparseEqualsTheBestOfAllPermutations) {
  std::mt19937_64 random(12);
  for (int i = 0; i < 700; ++i) {
    const std::int32_t n = 1 + i % 7;
    const std::int64_t range = i % 2 == 0 ? 3 : std::int64_t{1} << 50;
    std::vector<std::int64_t> weights(static_cast<std::size_t>(n * n), 0);
    for (std::int64_t& weight : weights)
      if (random() % 3 != 0) weight = std::uniform_int_distribution<std::int64_t>(0, range)(random);
    const std::vector<std::int32_t> columns = assign_max_weight_sparse(n, above_zero(n, weights));
    ASSERT_EQ(columns.size(), static_cast<std::size_t>(n));
    EXPECT_EQ(sum_of(n, weights, columns), best_of_all(n, weights)) << "n " << n << ", case " << i;
  }
}

TEST(Assignment, BothSolversAgreeAboutManyProcesses) {
  std::mt19937_64 random(13);
  const std::int32_t n = 300;
  for (const int per_row : {1, 3, 20, 300})
    for (const std::int64_t range : {std::int64_t{2}, std::int64_t{1000}, std::int64_t{1} << 40}) {
      std::vector<std::int64_t> weights(static_cast<std::size_t>(n * n), 0);
      for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i)
        for (int k = 0; k < per_row; ++k)
          weights[i * static_cast<std::size_t>(n) + random() % static_cast<std::size_t>(n)] =
              1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(range));
      EXPECT_EQ(sum_of(n, weights, assign_max_weight_sparse(n, above_zero(n, weights))),
                sum_of(n, weights, assign_max_weight(n, weights)))
          << per_row << " per row below " << range;
    }
}

TEST(Assignment, ProductsPairInOrder) {
  // The sum of i*j is largest for equal indices: hard for augmenting paths alone.
  for (const std::int32_t n : {33, 257, 600}) {
    std::vector<std::int64_t> weights(static_cast<std::size_t>(n) * static_cast<std::size_t>(n));
    std::int64_t expected = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < n; ++j) weights[static_cast<std::size_t>(i * n + j)] = i * j;
      expected += i * i;
    }
    EXPECT_EQ(sum_of(n, weights, assign_max_weight(n, weights)), expected);
    for (std::int64_t& weight : weights) weight = 7;
    EXPECT_EQ(sum_of(n, weights, assign_max_weight(n, weights)), 7 * n);
  }
}

TEST(Assignment, WrongInputIsAnError) {
  EXPECT_THROW(assign_max_weight_sparse(2, std::vector<SparseWeight>{{0, 2, 1}}), Error);
  EXPECT_THROW(assign_max_weight_sparse(2, std::vector<SparseWeight>{{0, 1, 0}}), Error);

  EXPECT_THROW(assign_max_weight(2, std::vector<std::int64_t>(3)), Error);
  EXPECT_THROW(assign_max_weight(-1, {}), Error);
  EXPECT_TRUE(assign_max_weight(0, {}).empty());
  EXPECT_THROW(assign_max_weight(1, std::vector<std::int64_t>{std::int64_t{1} << 62}), Error);
}

}  // namespace
}  // namespace penstock
