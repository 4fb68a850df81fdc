#include "checkpoint/staging.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
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

}  // namespace
}  // namespace penstock::checkpoint::test
