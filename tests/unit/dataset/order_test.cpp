#include "dataset/order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "dataset/permutation.hpp"

namespace penstock::dataset {
namespace {

std::vector<std::uint64_t> all(const Order& order, std::uint64_t epoch = 0) {
  std::vector<std::uint64_t> indices;
  for (std::uint64_t i = 0; i < order.size(); ++i) indices.push_back(order.at(epoch, i));
  return indices;
}

TEST(Permutation, IsABijectionForEverySize) {
  for (std::uint64_t size : {1, 2, 3, 5, 16, 17, 63, 64, 65, 255, 256, 257, 1000, 4095, 4097, 70000}) {
    const Permutation permutation(7, 3, size);
    std::vector<bool> seen(size);
    for (std::uint64_t i = 0; i < size; ++i) {
      const std::uint64_t to = permutation(i);
      ASSERT_LT(to, size);
      ASSERT_FALSE(seen[to]) << size;
      seen[to] = true;
    }
  }
}

TEST(Permutation, WorksAtTheLargestSizes) {
  for (std::uint64_t size : {std::uint64_t{1} << 40, (std::uint64_t{1} << 62) + 1, ~std::uint64_t{0}}) {
    const Permutation permutation(1, 0, size);
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < 1000; ++i) {
      seen.insert(permutation(i));
      seen.insert(permutation(size - 1 - i));
    }
    EXPECT_EQ(seen.size(), 2000u);
    EXPECT_LT(*seen.rbegin(), size);
  }
}

TEST(Permutation, HasAnInverse) {
  for (std::uint64_t size : {1, 2, 5, 17, 1000, 70000}) {
    const Permutation permutation(7, 3, size);
    for (std::uint64_t i = 0; i < size; ++i) ASSERT_EQ(permutation.inverse(permutation(i)), i) << size;
  }
}

TEST(ShuffledInBlocks, IsAPermutationThatUsesAWindowOfBlocksAtATime) {
  for (std::uint64_t size : {1, 2, 7, 64, 100, 1001})
    for (std::uint64_t block : {1, 3, 16, 2000})
      for (std::uint64_t window : {1, 2, 5, 4000}) {
        const OrderPtr order = shuffled_in_blocks(sequential(size), 5, block, window);
        ASSERT_EQ(order->size(), size);
        const std::vector<std::uint64_t> indices = all(*order, 2);
        ASSERT_EQ(std::set<std::uint64_t>(indices.begin(), indices.end()).size(), size);
        ASSERT_LT(*std::ranges::max_element(indices), size);
        // A block's first and last use enclose at most the samples of its window.
        std::map<std::uint64_t, std::pair<std::size_t, std::size_t>> uses;
        for (std::size_t i = 0; i < indices.size(); ++i) {
          const auto [use, first] = uses.try_emplace(indices[i] / block, i, i);
          use->second.second = i;
        }
        for (const auto& [which, use] : uses) ASSERT_LE(use.second - use.first, window * block - 1);
        if (size > 60 && block < size) {
          EXPECT_NE(indices, all(*order, 3));
        }
      }
}

TEST(ShuffledInBlocks, KeepsItsValues) {
  EXPECT_EQ(all(*shuffled_in_blocks(sequential(10), 1, 3, 2)),
            (std::vector<std::uint64_t>{9, 8, 6, 7, 4, 1, 0, 5, 2, 3}));
}

// A saved position must mean the same samples in later versions.
TEST(Permutation, KeepsItsValues) {
  std::vector<std::uint64_t> values;
  for (std::uint64_t i = 0; i < 10; ++i) values.push_back(Permutation(1, 2, 10)(i));
  EXPECT_EQ(values, (std::vector<std::uint64_t>{8, 7, 9, 4, 0, 1, 6, 2, 5, 3}));
  EXPECT_EQ(Permutation(42, 0, 1000000)(123456), 923728u);
}

// A chi-square test of the positions of all elements: 10 x 10 counts, 81 degrees of freedom, 0.1% lies above 124.8.
TEST(Permutation, IsEvenlySpreadOverSeedsAndEpochs) {
  constexpr int kSize = 10;
  constexpr int kTrials = 20000;
  for (bool by_seed : {true, false}) {
    std::vector<int> cells(kSize * kSize);
    for (std::uint64_t trial = 0; trial < kTrials; ++trial) {
      const Permutation permutation(by_seed ? trial : 5, by_seed ? 5 : trial, kSize);
      for (std::uint64_t i = 0; i < kSize; ++i) ++cells[i * kSize + permutation(i)];
    }
    double chi_square = 0;
    for (int count : cells) chi_square += (count - kTrials / 10.0) * (count - kTrials / 10.0) / (kTrials / 10.0);
    EXPECT_LT(chi_square, 150) << by_seed;
    EXPECT_GT(chi_square, 40) << by_seed;
  }
}

TEST(Permutation, NeighboursDoNotStayTogether) {
  constexpr std::uint64_t kSize = 10000;
  const Permutation permutation(3, 0, kSize);
  int close = 0;
  for (std::uint64_t i = 0; i + 1 < kSize; ++i) {
    const std::uint64_t a = permutation(i), b = permutation(i + 1);
    close += (a > b ? a - b : b - a) <= 10;
  }
  EXPECT_LT(close, 50);  // a random order has 20 on average
}

TEST(Order, StagesCompose) {
  const OrderPtr ten = sequential(10);
  EXPECT_EQ(all(*window(ten, 3, 4)), (std::vector<std::uint64_t>{3, 4, 5, 6}));
  EXPECT_EQ(all(*window(ten, 8, 100)), (std::vector<std::uint64_t>{8, 9}));
  EXPECT_EQ(window(ten, 20, 5)->size(), 0u);
  auto mixed = all(*shuffled(window(ten, 3, 4), 1), 5);
  std::ranges::sort(mixed);
  EXPECT_EQ(mixed, (std::vector<std::uint64_t>{3, 4, 5, 6}));
  EXPECT_NE(all(*shuffled(ten, 1), 0), all(*shuffled(ten, 1), 1));
  EXPECT_NE(all(*shuffled(ten, 1), 0), all(*shuffled(ten, 2), 0));
}

// Compares with a straightforward loop.
TEST(Order, InterleavingTakesBlocksInTurn) {
  for (std::uint64_t block : {1, 2, 3, 7}) {
    for (const std::vector<std::uint64_t>& sizes :
         {std::vector<std::uint64_t>{5}, {3, 3, 3}, {10, 1, 4}, {0, 7, 2, 13}, {0, 0}, {6, 8, 6, 21, 1}}) {
      std::vector<OrderPtr> orders;
      std::vector<std::uint64_t> left = sizes, next(sizes.size()), offset(sizes.size()), expected;
      std::uint64_t total = 0;
      for (std::size_t k = 0; k < sizes.size(); ++k) {
        orders.push_back(sequential(sizes[k]));
        offset[k] = total;
        total += sizes[k];
      }
      while (expected.size() < total)
        for (std::size_t k = 0; k < sizes.size(); ++k)
          for (std::uint64_t i = 0; i < block && next[k] < sizes[k]; ++i) expected.push_back(offset[k] + next[k]++);
      EXPECT_EQ(all(*interleaved(orders, sizes, block)), expected) << block;
    }
  }
}

TEST(Sharding, SharesOfAllRanksAreTheGlobalBatch) {
  for (bool contiguous : {true, false}) {
    for (int size : {1, 2, 3, 4, 7, 17}) {
      for (std::uint64_t count : {0, 1, 5, 16, 17, 64}) {
        std::vector<std::uint64_t> positions;
        std::uint64_t least = count, most = 0;
        for (int rank = 0; rank < size; ++rank) {
          const Share share = Sharding{8, rank, size, contiguous, false}.share(100, 100 + count);
          least = std::min(least, share.count);
          most = std::max(most, share.count);
          for (std::uint64_t i = 0; i < share.count; ++i) positions.push_back(share.first + i * share.stride);
        }
        if (!contiguous) std::ranges::sort(positions);
        ASSERT_EQ(positions.size(), count);
        for (std::uint64_t i = 0; i < count; ++i) EXPECT_EQ(positions[i], 100 + i);
        EXPECT_LE(most - least, 1u);
      }
    }
  }
}

TEST(Sharding, RemainderIsDroppedOnlyWhenAsked) {
  EXPECT_EQ((Sharding{4, 0, 2, true, false}.end(8, 10)), 10u);
  EXPECT_EQ((Sharding{4, 0, 2, true, true}.end(8, 10)), 8u);
  EXPECT_EQ((Sharding{4, 0, 2, false, false}.end(0, 10)), 8u);
  EXPECT_EQ((Sharding{4, 0, 2, true, false}.end(10, 10)), 10u);
}

// Every range of the order has the datasets in proportion to their weights, and each dataset keeps its own order.
TEST(Mixed, SharesAreTheWeightsOfEveryStretch) {
  for (const std::vector<std::uint32_t>& weights :
       {std::vector<std::uint32_t>{1}, {1, 1}, {7, 3}, {1, 1000}, {5, 0x80000000u, 3}, {2, 3, 5, 7}}) {
    std::vector<OrderPtr> orders;
    std::vector<std::uint64_t> sizes;
    std::uint64_t all = 0;
    for (const std::uint32_t weight : weights) {
      sizes.push_back(100 + 37 * sizes.size());
      orders.push_back(sequential(sizes.back()));
      all += weight;
    }
    const OrderPtr order = mixed(orders, sizes, weights, 3000);
    ASSERT_EQ(order->size(), 3000u);
    std::vector<std::uint64_t> given(weights.size(), 0);
    for (std::uint64_t position = 0; position < order->size(); ++position) {
      std::uint64_t index = order->at(0, position);
      std::size_t k = 0;
      for (; index >= sizes[k]; ++k) index -= sizes[k];
      ASSERT_EQ(index, given[k] % sizes[k]) << position;
      ++given[k];
      for (std::size_t i = 0; i < weights.size(); ++i) {
        const double share = static_cast<double>(weights[i]) / static_cast<double>(all);
        ASSERT_NEAR(static_cast<double>(given[i]), share * static_cast<double>(position + 1), 2.0);
      }
    }
  }
}

TEST(Mixed, EndsWithTheFirstThatIsExhausted) {
  const OrderPtr order = mixed({sequential(30), sequential(1000)}, {30, 1000}, {1, 3}, std::nullopt);
  std::set<std::uint64_t> seen;
  for (std::uint64_t position = 0; position < order->size(); ++position)
    EXPECT_TRUE(seen.insert(order->at(0, position)).second);
  EXPECT_TRUE(seen.contains(29));
  EXPECT_NEAR(static_cast<double>(order->size()), 120, 3);
  EXPECT_EQ(mixed({sequential(5), sequential(0)}, {5, 0}, {1, 1}, std::nullopt)->size(), 1u);
}

TEST(Mixed, ARepeatedDatasetComesInAnotherOrderEachTime) {
  const OrderPtr order = mixed({shuffled(sequential(50), 3), sequential(1000)}, {50, 1000}, {1, 1}, 400);
  std::vector<std::vector<std::uint64_t>> passes(1);
  for (std::uint64_t epoch : {0, 1})
    for (std::uint64_t position = 0; position < 400; ++position) {
      const std::uint64_t index = order->at(epoch, position);
      if (index >= 50) continue;
      if (passes.back().size() == 50) passes.emplace_back();
      passes.back().push_back(index);
    }
  ASSERT_EQ(passes.size(), 8u);
  const std::set<std::vector<std::uint64_t>> different(passes.begin(), passes.end());
  EXPECT_EQ(different.size(), 8u);
  for (const auto& pass : passes) EXPECT_EQ(std::set<std::uint64_t>(pass.begin(), pass.end()).size(), 50u);
}

}  // namespace
}  // namespace penstock::dataset
