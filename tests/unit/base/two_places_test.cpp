// Things that are used in turns are all found again.
#include "base/two_places.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace penstock::base {
namespace {

struct Entry {
  std::uint64_t thing = 0;
  bool is_set = false;
};

/// How many of `uses` of each of these, in turns, find no entry.
std::size_t misses(const std::vector<std::uint64_t>& things, int uses) {
  TwoPlaces<Entry> kept;
  std::size_t found_none = 0;
  for (int i = 0; i < uses; ++i)
    for (const std::uint64_t thing : things) {
      const std::uint64_t hash = spread(thing);
      if (kept.find(hash, [&](const Entry& entry) { return entry.is_set && entry.thing == thing; }) != nullptr)
        continue;
      ++found_none;
      kept.make_room(hash, [](const Entry& entry) { return !entry.is_set; }) = {thing, true};
    }
  return found_none;
}

TEST(TwoPlaces, FindsEachOfTwoThings) {
  for (std::uint64_t first = 0; first < 300; ++first)
    for (std::uint64_t second = first + 1; second < 300; ++second)
      EXPECT_EQ(misses({first, second}, 10), 2u) << first << ", " << second;
}

TEST(TwoPlaces, FindsAFewThingsMostOfTheTime) {
  std::size_t displaced = 0;
  constexpr std::uint64_t kSets = 1000;
  for (std::uint64_t first = 0; first < kSets; ++first) {
    std::vector<std::uint64_t> things;
    for (std::uint64_t i = 0; i < 5; ++i) things.push_back(first * first + 7 * i * i);
    if (misses(things, 100) > 2 * things.size()) ++displaced;
  }
  EXPECT_LT(displaced, kSets / 50);
}

TEST(TwoPlaces, TakesTheThirdInPlaceOfAnother) {
  TwoPlaces<Entry> kept;
  const auto is_free = [](const Entry& entry) { return !entry.is_set; };
  Entry& first = kept.make_room(0, is_free) = {1, true};
  Entry& second = kept.make_room(0, is_free) = {2, true};
  EXPECT_NE(&first, &second);
  Entry& third = kept.make_room(0, is_free) = {3, true};
  Entry& fourth = kept.make_room(0, is_free) = {4, true};
  EXPECT_NE(&third, &fourth);
  EXPECT_EQ(first.thing + second.thing, 3u + 4u);
  kept.clear();
  EXPECT_EQ(kept.find(0, [](const Entry& entry) { return entry.is_set; }), nullptr);
}

}  // namespace
}  // namespace penstock::base
