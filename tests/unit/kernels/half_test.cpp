#include "kernels/half.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace penstock::kernels {
namespace {

float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

// Follows the definition of binary16, independently of the conversion under test.
double value_of(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31) return fraction ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(Float16, EveryValueConvertsExactlyAndBack) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const Float16 half{static_cast<std::uint16_t>(bits)};
    const double expected = value_of(half.bits);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(to_float(half))) << bits;
      EXPECT_TRUE(std::isnan(value_of(to_float16(to_float(half)).bits))) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(to_float(half)), expected) << bits;
    ASSERT_EQ(std::signbit(to_float(half)), std::signbit(expected)) << bits;
    ASSERT_EQ(to_float16(to_float(half)).bits, bits);
  }
}

TEST(Float16, RoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x7bff; ++bits) {  // all pairs of neighbouring positive finite values
    const auto lower = static_cast<std::uint16_t>(bits);
    const auto upper = static_cast<std::uint16_t>(bits + 1);
    const auto middle = static_cast<float>((value_of(lower) + value_of(upper)) / 2);
    ASSERT_EQ(to_float16(middle).bits, lower % 2 == 0 ? lower : upper) << bits;
    ASSERT_EQ(to_float16(std::nextafter(middle, 0.0f)).bits, lower) << bits;
    ASSERT_EQ(to_float16(std::nextafter(middle, 1e9f)).bits, upper) << bits;
    ASSERT_EQ(to_float16(-middle).bits, 0x8000 | (lower % 2 == 0 ? lower : upper)) << bits;
  }
  EXPECT_EQ(to_float16(65519.0f).bits, 0x7bff);
  EXPECT_EQ(to_float16(65520.0f).bits, 0x7c00) << "rounds to infinity";
  EXPECT_EQ(to_float16(1e30f).bits, 0x7c00);
  EXPECT_EQ(to_float16(1e-30f).bits, 0);
}

TEST(BFloat16, KeepsTheUpperHalfAndRounds) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const BFloat16 value{static_cast<std::uint16_t>(bits)};
    const float widened = to_float(value);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(widened), bits << 16);
    if (std::isnan(widened)) {
      ASSERT_TRUE(std::isnan(to_float(to_bfloat16(widened)))) << bits;
      continue;
    }
    ASSERT_EQ(to_bfloat16(widened).bits, bits);
  }
  EXPECT_EQ(to_bfloat16(from_bits(0x3f808000)).bits, 0x3f80) << "a tie goes to the even neighbour";
  EXPECT_EQ(to_bfloat16(from_bits(0x3f818000)).bits, 0x3f82);
  EXPECT_EQ(to_bfloat16(from_bits(0x3f808001)).bits, 0x3f81);
  EXPECT_EQ(to_bfloat16(from_bits(0x7f7fffff)).bits, 0x7f80) << "overflows to infinity";
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(from_bits(0x7f800001))))) << "NaN in the low bits only";
}

}  // namespace
}  // namespace penstock::kernels
