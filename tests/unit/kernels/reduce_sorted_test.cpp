#include "kernels/reduce_sorted.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "kernels/half.hpp"
#include "kernels/sort_rows.hpp"

namespace penstock::kernels {
namespace {

TEST(SortingNetwork, SortsEveryPatternOfZerosAndOnes) {  // then it sorts all inputs (Knuth 5.3.4, theorem Z)
  for (std::uint32_t count = 0; count <= 17; ++count) {
    const auto network = sorting_network(count);
    for (std::uint32_t pattern = 0; pattern < (1u << count); ++pattern) {
      std::uint32_t bits = pattern;
      for (const auto& [low, high] : network)
        if ((bits >> low & 1) > (bits >> high & 1)) bits ^= 1u << low | 1u << high;
      const int ones = std::popcount(pattern);
      ASSERT_EQ(bits, ((1u << count) - 1) ^ ((1u << (count - static_cast<std::uint32_t>(ones))) - 1))
          << count << " values, pattern " << pattern;
    }
  }
}

template <class T>
std::vector<std::byte> copied_bytes(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::vector<std::byte> reduced(const Arithmetic& arithmetic, const std::vector<std::vector<std::byte>>& parts) {
  const std::vector<ConstBytes> views(parts.begin(), parts.end());
  std::vector<std::byte> to(parts[0].size(), std::byte{0x5a});
  reduce_sorted(arithmetic, views, to);
  return to;
}

// Values of all magnitudes and both signs, with some special values. Their sum depends on the order.
double wild(std::mt19937& random) {
  constexpr double kOdd[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, -NAN, 1e-40, -65504, 1e-300};
  if (random() % 40 == 0) return kOdd[random() % std::size(kOdd)];
  return std::ldexp(static_cast<double>(static_cast<std::int32_t>(random())), static_cast<int>(random() % 24) - 40);
}

std::vector<std::byte> wild_elements(DType dtype, std::size_t count, std::mt19937& random) {
  const auto fill = [&]<class T>(std::vector<T> values) {
    for (T& value : values) {
      if constexpr (std::is_same_v<T, Float16>)
        value = to_float16(static_cast<float>(wild(random)));
      else if constexpr (std::is_same_v<T, BFloat16>)
        value = to_bfloat16(static_cast<float>(wild(random)));
      else if constexpr (requires { value.imag(); })
        value = {static_cast<typename T::value_type>(wild(random)), static_cast<typename T::value_type>(wild(random))};
      else if constexpr (requires { value.place; })
        value = {static_cast<decltype(value.value)>(wild(random)),
                 static_cast<decltype(value.place)>(static_cast<double>(random() % 5))};
      else
        value = static_cast<T>(wild(random));
    }
    return copied_bytes(values);
  };
  switch (dtype) {
    case DType::float16: return fill(std::vector<Float16>(count));
    case DType::bfloat16: return fill(std::vector<BFloat16>(count));
    case DType::float32: return fill(std::vector<float>(count));
    case DType::float64: return fill(std::vector<double>(count));
    case DType::complex64: return fill(std::vector<std::complex<float>>(count));
    case DType::complex128: return fill(std::vector<std::complex<double>>(count));
    case DType::longdouble: return fill(std::vector<long double>(count));
    case DType::clongdouble: return fill(std::vector<std::complex<long double>>(count));
    case DType::float32_int32: return fill(std::vector<Float32Int32>(count));
    case DType::float64_int32: return fill(std::vector<Float64Int32>(count));
    case DType::float64_float64: return fill(std::vector<Float64Float64>(count));
    default: {
      std::vector<std::byte> bytes(count * size_bytes(dtype));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
      return bytes;
    }
  }
}

TEST(ReduceSorted, GivesTheSameBitsForEveryOrderAndPlace) {
  std::mt19937 random(3);
  for (int dtype = 0; dtype <= static_cast<int>(DType::float64_float64); ++dtype)
    for (int op = 0; op <= static_cast<int>(ReduceOp::maxloc); ++op) {
      const Arithmetic arithmetic{.dtype = static_cast<DType>(dtype), .op = static_cast<ReduceOp>(op)};
      if (!defined_for(arithmetic.op, arithmetic.dtype) || arithmetic.dtype == DType::longdouble_int32) continue;
      if (arithmetic.dtype == DType::int16_int32 || arithmetic.dtype == DType::int64_int32) continue;  // padding
      SCOPED_TRACE(std::string(name(arithmetic.op)) + " of " + std::string(name(arithmetic.dtype)));
      const std::size_t element_bytes = size_bytes(arithmetic.dtype);
      for (const std::size_t ranks : {2, 3, 8, 13}) {
        constexpr std::size_t kCount = 97;
        std::vector<std::vector<std::byte>> parts;
        for (std::size_t i = 0; i < ranks; ++i) parts.push_back(wild_elements(arithmetic.dtype, kCount, random));
        const std::vector<std::byte> expected = reduced(arithmetic, parts);
        std::ranges::shuffle(parts, random);
        ASSERT_EQ(reduced(arithmetic, parts), expected) << ranks << " parts in another order";
        // A single element takes other instructions, as at the end of a message.
        for (const std::size_t at : {std::size_t{0}, std::size_t{40}, kCount - 1}) {
          std::vector<std::vector<std::byte>> alone;
          for (const auto& part : parts) {
            const auto begin = part.begin() + static_cast<std::ptrdiff_t>(at * element_bytes);
            alone.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(element_bytes));
          }
          const auto begin = expected.begin() + static_cast<std::ptrdiff_t>(at * element_bytes);
          ASSERT_EQ(reduced(arithmetic, alone),
                    std::vector<std::byte>(begin, begin + static_cast<std::ptrdiff_t>(element_bytes)))
              << ranks << " parts, element " << at << " alone";
        }
      }
    }
}

TEST(ReduceSorted, TheOrderWouldMatter) {  // otherwise the test above proves nothing
  std::mt19937 random(3);
  std::vector<std::vector<std::byte>> parts;
  for (int i = 0; i < 8; ++i) parts.push_back(wild_elements(DType::float32, 97, random));
  const auto in_order = [&] {
    std::vector<std::byte> sum = parts[0];
    for (std::size_t i = 1; i < parts.size(); ++i) reduce({.dtype = DType::float32}, parts[i], sum);
    return sum;
  };
  const std::vector<std::byte> one = in_order();
  std::ranges::reverse(parts);
  EXPECT_NE(in_order(), one);
}

TEST(ReduceSorted, IsCloseToTheExactSum) {
  std::mt19937 random(5);
  constexpr std::size_t kRanks = 64, kCount = 500;
  std::vector<std::vector<std::byte>> parts;
  std::vector<double> exact(kCount), magnitudes(kCount);
  for (std::size_t i = 0; i < kRanks; ++i) {
    std::vector<float> values(kCount);
    for (std::size_t j = 0; j < kCount; ++j) {
      values[j] = std::normal_distribution<float>()(random);
      exact[j] += values[j];
      magnitudes[j] += std::abs(values[j]);
    }
    parts.push_back(copied_bytes(values));
  }
  const std::vector<std::byte> sums = reduced({.dtype = DType::float32}, parts);
  for (std::size_t j = 0; j < kCount; ++j) {
    float sum;
    std::memcpy(&sum, &sums[j * 4], 4);
    EXPECT_NEAR(sum, exact[j], 6 * 0x1p-24 * magnitudes[j]) << "log2(n) * u * sum of magnitudes";
  }
}

TEST(ReduceSorted, SmallMagnitudesMeetFirst) {
  // 2^24 + 1 + 1 is 2^24 + 2 only if the ones are added first.
  for (const std::vector<float>& order : {std::vector<float>{0x1p24f, 1, 1}, {1, 0x1p24f, 1}, {1, 1, 0x1p24f}}) {
    std::vector<std::vector<std::byte>> parts;
    for (const float value : order) parts.push_back(copied_bytes(std::vector<float>{value}));
    EXPECT_EQ(reduced({.dtype = DType::float32}, parts), copied_bytes(std::vector<float>{0x1p24f + 2}));
  }
}

TEST(ReduceSorted, NansHaveOnePatternAndZerosTheirSign) {
  const auto sum = [](std::vector<double> values) {
    std::vector<std::vector<std::byte>> parts;
    for (const double value : values) parts.push_back(copied_bytes(std::vector<double>{value}));
    return reduced({.dtype = DType::float64}, parts);
  };
  const std::vector<std::byte> nan = copied_bytes(std::vector<double>{std::numeric_limits<double>::quiet_NaN()});
  EXPECT_EQ(sum({INFINITY, -INFINITY, 1}), nan);
  EXPECT_EQ(sum({-NAN, 1, 2}), nan);
  EXPECT_EQ(sum({-0.0, -0.0}), copied_bytes(std::vector<double>{-0.0}));
  EXPECT_EQ(sum({-0.0, 0.0, -0.0}), copied_bytes(std::vector<double>{0.0}));
}

TEST(ReduceSorted, TakesOperationsOfTheUser) {
  // A weighted mean of three bytes is not associative, so its bits depend on the order.
  UserOp mean{.combine =
                  [](ConstBytes from, Bytes to) {
                    for (std::size_t i = 0; i < to.size(); ++i)
                      to[i] =
                          static_cast<std::byte>((3 * std::to_integer<int>(from[i]) + std::to_integer<int>(to[i])) / 4);
                  },
              .element_bytes = 3};
  const Arithmetic arithmetic{.user = std::make_shared<const UserOp>(mean)};
  std::mt19937 random(9);
  std::vector<std::vector<std::byte>> parts;
  for (int i = 0; i < 5; ++i) parts.push_back(wild_elements(DType::uint8, 30'000, random));
  const std::vector<std::byte> expected = reduced(arithmetic, parts);
  std::ranges::reverse(parts);
  EXPECT_EQ(reduced(arithmetic, parts), expected);
}

}  // namespace
}  // namespace penstock::kernels
