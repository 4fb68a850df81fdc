#include "kernels/copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace penstock::kernels {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kMostBytes = 3 * kPageBytes;
constexpr auto kUntouched = std::byte{0xEE};

/// Each buffer has two spare pages, so a target can lie at any offset from its source modulo a page.
struct Buffers {
  alignas(kPageBytes) std::byte from[kMostBytes + 2 * kPageBytes];
  alignas(kPageBytes) std::byte to[kMostBytes + 2 * kPageBytes];
};

class Copy : public testing::TestWithParam<std::size_t> {};

TEST_P(Copy, CopiesExactlyThatWhereverSourceAndTargetLie) {
  static Buffers buffers;
  for (std::size_t i = 0; i < sizeof buffers.from; ++i) buffers.from[i] = static_cast<std::byte>(i * 7 + i / 251);
  const std::size_t size_bytes = GetParam();
  for (const std::size_t source : {0, 1, 16, 63, 64, 2048, 4095})
    for (const std::size_t target : {0, 1, 15, 16, 48, 63, 64, 65, 2048, 2064, 4095}) {
      std::fill(std::begin(buffers.to), std::end(buffers.to), kUntouched);
      const std::byte* from = buffers.from + source;
      std::byte* to = buffers.to + target;
      copy_bytes(to, from, size_bytes);
      ASSERT_TRUE(std::equal(to, to + size_bytes, from)) << source << " to " << target;
      const auto is_untouched = [](std::byte byte) { return byte == kUntouched; };
      ASSERT_TRUE(std::all_of(std::begin(buffers.to), to, is_untouched)) << source << " to " << target;
      ASSERT_TRUE(std::all_of(to + size_bytes, std::end(buffers.to), is_untouched)) << source << " to " << target;
    }
}

INSTANTIATE_TEST_SUITE_P(Bytes, Copy, testing::Values(0, 1, 63, 2047, 2048, 2049, 4095, 4096, 4097, 8191, kMostBytes));

TEST(CopyAsString, LeavesWhatItDoesNotDoAlone) {
  std::vector<std::byte> from(2 * kPageBytes, std::byte{1});
  std::vector<std::byte> to(2 * kPageBytes, kUntouched);
  const bool is_done = copy_as_string(to.data(), from.data(), to.size());
  EXPECT_EQ(to, std::vector<std::byte>(to.size(), is_done ? std::byte{1} : kUntouched));
  to.assign(to.size(), kUntouched);
  EXPECT_FALSE(copy_as_string(to.data(), from.data(), 64)) << "too short";
  EXPECT_EQ(to.front(), kUntouched);
}

TEST(CopyAsString, RefusesTargetsALittleBehindTheSource) {
  static Buffers buffers;
  for (const std::size_t behind : {1, 16, 63})
    EXPECT_FALSE(copy_as_string(buffers.to + behind, buffers.from, kMostBytes)) << behind;
}

}  // namespace
}  // namespace penstock::kernels
