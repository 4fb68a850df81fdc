// All ways to compute a checksum give the XXH3-128 of xxHash.
#include "store/checksum.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace penstock::store {
namespace {

Checksum reference(ConstBytes data) {
  const XXH128_hash_t hash = XXH3_128bits(data.data(), data.size());
  return {hash.low64, hash.high64};
}

std::vector<std::byte> noise(std::size_t size) {
  std::vector<std::byte> data(size);
  unsigned state = 1;
  for (std::byte& byte : data) byte = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
  return data;
}

TEST(Checksum, IsXxh3OfEveryLengthAndAlignment) {
  const std::vector<std::byte> data = noise(5000);
  for (std::size_t size = 0; size <= 4200; ++size) {
    const ConstBytes part = ConstBytes(data).subspan(size % 37, size);
    ASSERT_EQ(checksum(part), reference(part)) << size;
  }
}

TEST(Checksum, IsXxh3OfLongData) {
  const std::vector<std::byte> data = noise(300'000);
  for (const std::size_t size : {8191ul, 8192ul, 8193ul, 65535ul, 65536ul, 65537ul, 66560ul, 299'999ul}) {
    for (const std::size_t skip : {0ul, 1ul}) {
      const ConstBytes part = ConstBytes(data).subspan(skip, size);
      ASSERT_EQ(checksum(part), reference(part)) << size << " from " << skip;
    }
  }
}

TEST(Checksum, OfPiecesIsThatOfAllTogether) {
  const std::vector<std::byte> data = noise(200'000);
  for (const std::size_t size : {3ul, 100ul, 1000ul, 5000ul, 65536ul, 200'000ul}) {
    const ConstBytes whole = ConstBytes(data).first(size);
    for (const std::size_t step : {1ul, 7ul, 512ul, 3000ul, 100'000ul}) {
      std::vector<ConstBytes> pieces;
      for (std::size_t at = 0; at < size; at += step) pieces.push_back(whole.subspan(at, std::min(step, size - at)));
      ASSERT_EQ(checksum(pieces), reference(whole)) << size << " in steps of " << step;
    }
  }
}

}  // namespace
}  // namespace penstock::store
