#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/convert.hpp"
#include "kernels/half.hpp"

namespace penstock::kernels {
namespace {

template <class To, class From>
To converted(DType from, DType to, From value) {
  To result{};
  conversion(from, to)(reinterpret_cast<const std::byte*>(&value), sizeof value, reinterpret_cast<std::byte*>(&result),
                       1);
  return result;
}

TEST(Convert, DoublesAreRoundedToHalfOnce) {
  // The values are a little off the middle between two halves. Rounding to float first would lose that, and then round
  // to even.
  const double ulp = std::ldexp(1.0, -10);
  const double little = std::ldexp(1.0, -40);
  const auto half = [](double value) { return to_float(converted<Float16>(DType::float64, DType::float16, value)); };
  EXPECT_EQ(half(1 + ulp / 2), 1.0f) << "a tie goes to even";
  EXPECT_EQ(half(1 + ulp / 2 + little), static_cast<float>(1 + ulp));
  EXPECT_EQ(half(-(1 + 1.5 * ulp - little)), static_cast<float>(-(1 + ulp)));
  EXPECT_EQ(half(65519.999), 65504.0f);
  EXPECT_TRUE(std::isinf(half(65520.0)));
  EXPECT_TRUE(std::isinf(half(1e300)));
  EXPECT_TRUE(std::isnan(half(std::numeric_limits<double>::quiet_NaN())));
  EXPECT_EQ(half(std::numeric_limits<double>::infinity()), std::numeric_limits<float>::infinity());
  const auto bfloat = [](double value) {
    return to_float(converted<BFloat16>(DType::float64, DType::bfloat16, value));
  };
  EXPECT_EQ(bfloat(1 + std::ldexp(1.0, -8) + little), static_cast<float>(1 + std::ldexp(1.0, -7)));
}

TEST(Convert, HalvesComeBackUnchanged) {
  for (std::uint32_t bits = 0; bits < 1u << 16; ++bits) {
    const Float16 half{static_cast<std::uint16_t>(bits)};
    if (std::isnan(to_float(half))) continue;
    const auto wide = converted<double>(DType::float16, DType::float64, half);
    EXPECT_EQ(converted<Float16>(DType::float64, DType::float16, wide).bits, bits);
  }
}

TEST(Convert, StepsThroughTheSource) {
  const std::vector<double> from{1, 2, 3, 4, 5, 6};
  std::vector<float> to(2);
  conversion(DType::float64, DType::float32)(reinterpret_cast<const std::byte*>(from.data() + 1), 3 * sizeof(double),
                                             reinterpret_cast<std::byte*>(to.data()), 2);
  EXPECT_EQ(to, (std::vector<float>{2, 5}));
}

TEST(Convert, NotWhereMoreThanPrecisionIsLost) {
  EXPECT_EQ(conversion(DType::complex64, DType::float64), nullptr);
  EXPECT_EQ(conversion(DType::float16, DType::int64), nullptr);
  EXPECT_NE(conversion(DType::int64, DType::int8), nullptr);
  EXPECT_NE(conversion(DType::uint8, DType::complex64), nullptr);
}

}  // namespace
}  // namespace penstock::kernels
