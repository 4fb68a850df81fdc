#include "base/lru_cache.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace penstock::base {
namespace {

using Cache = LruCache<int, std::shared_ptr<std::string>>;

std::shared_ptr<std::string> text(int key) { return std::make_shared<std::string>(std::to_string(key)); }

std::vector<int> keys(Cache& cache) {
  std::vector<int> result;
  for (const Cache::Entry& entry : cache) result.push_back(entry.key);
  return result;
}

TEST(LruCache, EvictsWhatWasUsedLeastRecently) {
  Cache cache(30);
  for (const int key : {1, 2, 3}) cache.add(key, text(key), 10);
  EXPECT_EQ(keys(cache), (std::vector{3, 2, 1}));
  cache.use(cache.find(1));
  EXPECT_EQ(keys(cache), (std::vector{1, 3, 2}));
  EXPECT_NE(cache.find(2), cache.end());  // find() does not count as a use
  cache.add(4, text(4), 10);
  EXPECT_EQ(keys(cache), (std::vector{4, 1, 3}));
  EXPECT_EQ(cache.find(2), cache.end());
  cache.add(5, text(5), 15);  // evicts two entries
  EXPECT_EQ(keys(cache), (std::vector{5, 4}));
  EXPECT_EQ(cache.size_bytes(), 25u);
}

TEST(LruCache, KeepsTheLatestEntryHoweverLarge) {
  Cache cache(30);
  cache.add(1, text(1), 10);
  cache.add(2, text(2), 1000);
  EXPECT_EQ(keys(cache), std::vector{2});
  cache.add(3, text(3), 10);
  EXPECT_EQ(keys(cache), std::vector{3});
  EXPECT_EQ(cache.size_bytes(), 10u);
}

TEST(LruCache, WhatIsInUseOutlivesItsEntry) {
  Cache cache(10);
  const std::shared_ptr<std::string> kept = cache.add(1, text(1), 10)->value;
  cache.add(2, text(2), 10);
  EXPECT_EQ(cache.find(1), cache.end());
  EXPECT_EQ(*kept, "1");
  EXPECT_EQ(kept.use_count(), 1);
}

TEST(LruCache, HoldsItsBoundLikeAListThatIsSearched) {
  std::mt19937 random(3);
  Cache cache(500);
  std::vector<std::pair<int, std::uint64_t>> expected;  // most recent first
  const auto sum = [&] {
    std::uint64_t bytes = 0;
    for (const auto& each : expected) bytes += each.second;
    return bytes;
  };
  for (int turn = 0; turn < 5000; ++turn) {
    const int key = static_cast<int>(random() % 60);
    const auto known = std::ranges::find(expected, key, [](const auto& each) { return each.first; });
    const auto found = cache.find(key);
    ASSERT_EQ(found != cache.end(), known != expected.end()) << "turn " << turn;
    if (found != cache.end()) {
      ASSERT_EQ(*found->value, std::to_string(key));
      cache.use(found);
      std::rotate(expected.begin(), known, known + 1);
    } else {
      const std::uint64_t bytes = 1 + random() % 50;
      cache.add(key, text(key), bytes);
      expected.insert(expected.begin(), {key, bytes});
      while (sum() > 500) expected.pop_back();
    }
    ASSERT_EQ(cache.size(), expected.size());
    ASSERT_EQ(cache.size_bytes(), sum());
  }
}

}  // namespace
}  // namespace penstock::base
