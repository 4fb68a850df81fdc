// Utilities that several layers use: hashes, overlaps, lists of ranks as text.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "base/overlap.hpp"
#include "base/ranks_text.hpp"

namespace penstock::base {
namespace {

TEST(Mix, DependsOnEveryWordAndItsPlace) {
  std::set<std::uint64_t> words;
  for (std::uint64_t a = 0; a < 30; ++a)
    for (std::uint64_t b = 0; b < 30; ++b) words.insert(mix(mix(kSeed, a), b));
  EXPECT_EQ(words.size(), 900u);
  std::set<std::uint64_t> texts;
  for (std::size_t length = 0; length < 40; ++length) texts.insert(mix(kSeed, std::string(length, '\0')));
  EXPECT_EQ(texts.size(), 40u) << "bytes that add nothing to a word count, too";
  EXPECT_EQ(mix(1, std::string("ring")), mix(1, "ring"));
}

TEST(Overlap, OfRangesAndOfMemory) {
  EXPECT_TRUE(overlap(0, 10, 9, 11));
  EXPECT_TRUE(overlap(3, 4, 0, 10));
  EXPECT_FALSE(overlap(0, 10, 10, 20));
  EXPECT_FALSE(overlap(10, 20, 0, 10));
  EXPECT_FALSE(overlap(5, 5, 0, 10)) << "an empty range shares nothing";
  EXPECT_FALSE(overlap(0, 10, 5, 5));
  const std::array<std::byte, 16> memory{};
  const ConstBytes all(memory);
  EXPECT_TRUE(overlap(all.first(8), all.subspan(7)));
  EXPECT_FALSE(overlap(all.first(8), all.subspan(8)));
  EXPECT_FALSE(overlap(ConstBytes{}, all));
}

TEST(RanksText, NamesAFewAndCountsTheRest) {
  const auto first = [](int count) {
    std::vector<int> ranks(static_cast<std::size_t>(count));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks_text(ranks);
  };
  EXPECT_EQ(ranks_text(std::array{3}), "rank 3");
  EXPECT_EQ(ranks_text(std::array{1, 2, 5}), "ranks 1, 2 and 5");
  EXPECT_EQ(first(10), "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8 and 9");
  EXPECT_EQ(first(12), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 4 others");
}

}  // namespace
}  // namespace penstock::base
