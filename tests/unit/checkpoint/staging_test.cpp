#include "checkpoint/staging.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>
#include <vector>

#include "unit/checkpoint/arrays.hpp"

namespace penstock::checkpoint::test {
namespace {

/// Arrays of any sizes, at any addresses, with gaps between their places.
TEST(Staging, CopiesAllArraysAndNothingElse) {
  Random random(3);
  for (int round = 0; round < 40; ++round) {
    const std::int64_t longest = round % 4 == 0 ? 9'000'000 : round % 4 == 1 ? 200'000 : 300;
    std::vector<std::uint64_t> sizes(static_cast<std::size_t>(between(random, 0, longest > 1'000'000 ? 4 : 60)));
    std::uint64_t room = 64;
    for (std::uint64_t& size : sizes) {
      size = static_cast<std::uint64_t>(between(random, 0, 5) == 0 ? 0 : between(random, 1, longest));
      room += size + 64;
    }
    std::vector<std::byte> source(room);
    for (std::size_t i = 0; i < room; ++i) source[i] = static_cast<std::byte>(mix(i));
    std::vector<std::byte> target(room, std::byte{7});
    std::vector<std::byte> expected = target;
    std::vector<Copy> copies;
    std::uint64_t from = 0, to = 0;
    for (const std::uint64_t size : sizes) {
      from += static_cast<std::uint64_t>(between(random, 0, 20));
      to += static_cast<std::uint64_t>(between(random, 0, 50));
      copies.push_back({ConstBytes(source).subspan(from, size), target.data() + to});
      std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(from), size,
                  expected.begin() + static_cast<std::ptrdiff_t>(to));
      from += size;
      to += size;
    }
    copy_all(copies, 1 + round % 3);
    EXPECT_EQ(target, expected) << "round " << round;
  }
}

TEST(Staging, WorkersGiveWayWhileASaveCopies) {
  Precedence copying;
  copying.give_way();
  std::atomic<bool> passed{false};
  std::thread worker;
  {
    const Precedence::Hold first(copying);
    const Precedence::Hold second(copying);
    worker = std::thread([&] {
      copying.give_way();
      passed = true;
    });
    EXPECT_FALSE(passed);
  }
  worker.join();
  EXPECT_TRUE(passed);
}

TEST(Staging, MemoryIsKeptIfItIsLargeEnough) {
  Staging staging;
  staging.reserve(1000);
  const std::byte* const memory = staging.first(1000).data();
  staging.reserve(500);
  EXPECT_EQ(staging.first(500).data(), memory);
  staging.reserve(5'000'000);
  EXPECT_GE(staging.size_bytes(), 5'000'000U);
}

TEST(StagingPool, KeepsToItsBudgetWhateverIsAskedFor) {
  Random random(5);
  for (int round = 0; round < 60; ++round) {
    StagingPool pool({1'000'000, 0, 1, [] { return std::uint64_t{0}; }});
    std::vector<const Staging*> held;
    std::map<const Staging*, std::uint64_t> sizes;
    for (int i = 0; i < 40; ++i) {
      const auto size = static_cast<std::uint64_t>(between(random, 0, 1'000'000));
      const StagingPool::Held now(held.begin(), held.end());
      std::uint64_t held_bytes = 0;
      for (const Staging* buffer : held) held_bytes += buffer->asked_bytes();
      if (held.empty() || between(random, 0, 2) > 0) {
        if (!pool.has_room(size, now)) {
          EXPECT_FALSE(held.empty());
          EXPECT_GT(held_bytes + size, 1'000'000u);
          continue;
        }
        Staging& buffer = pool.take(size, now);
        EXPECT_FALSE(now.contains(&buffer)) << "a buffer in use was taken";
        EXPECT_GE(buffer.size_bytes(), size);
        held.push_back(&buffer);
        std::uint64_t asked_bytes = 0;
        for (const Staging* one : held) asked_bytes += one->asked_bytes();
        EXPECT_LE(asked_bytes, 1'000'000u);
      } else {
        held.erase(held.begin() + between(random, 0, static_cast<std::int64_t>(held.size()) - 1));
      }
    }
  }
}

TEST(StagingPool, SavesThatFollowEachOtherSlowlyTakeOneBuffer) {
  StagingPool pool({0, 0, 1, [] { return std::uint64_t{1} << 40; }});
  const Staging& first = pool.take(5'000'000, {});
  EXPECT_EQ(&pool.take(4'000'000, {}), &first);
  EXPECT_LT(pool.size_bytes(), 2 * 4'000'000u);
  EXPECT_TRUE(pool.has_room(5'000'000, {&first}));
  const Staging& second = pool.take(5'000'000, {&first});
  EXPECT_FALSE(pool.has_room(1, {&first, &second})) << "twice the state is the default";
}

TEST(StagingPool, RanksOfANodeDivideItsFreeMemory) {
  for (const int ranks_here : {1, 4}) {
    StagingPool pool({0, 3, ranks_here, [] { return std::uint64_t{8'000'000}; }});
    const Staging& first = pool.take(1'000'001, {});
    EXPECT_EQ(pool.has_room(1'000'001, {&first}), ranks_here == 1);
    EXPECT_EQ(pool.buffers_for(1'000'001), ranks_here == 1 ? 3 : 1);
    EXPECT_EQ(pool.buffers_for(1'000'000), 3);
  }
}

}  // namespace
}  // namespace penstock::checkpoint::test
