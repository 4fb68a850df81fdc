// Compares every kernel of every vector width bit for bit with the kernel without wide vectors.
#include "kernels/vectors.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace penstock::kernels {
namespace {

// The result of two NaNs is an unspecified one of them, so only one operand may be NaN.
bool is_nan(DType dtype, const std::byte* at) {
  std::uint64_t bits = 0;
  const std::size_t element_bytes = size_bytes(dtype);
  std::memcpy(&bits, at, std::min<std::size_t>(element_bytes, 8));
  switch (dtype) {
    case DType::float16: return (bits & 0x7fff) > 0x7c00;
    case DType::bfloat16: return (bits & 0x7fff) > 0x7f80;
    case DType::float32: return (bits & 0x7fffffff) > 0x7f800000;
    case DType::float64: return (bits & 0x7fffffffffffffff) > 0x7ff0000000000000;
    default: return false;
  }
}

bool has_any_bits(DType dtype) { return dtype <= DType::float64 || dtype == DType::bool8; }

// All bit patterns if the type allows it; else whole numbers, which have exact products.
std::vector<std::byte> elements(DType dtype, std::size_t count, std::mt19937& random) {
  const std::size_t element_bytes = size_bytes(dtype);
  std::vector<std::byte> bytes(count * element_bytes);
  for (std::size_t i = 0; i < count; ++i) {
    std::byte* at = &bytes[i * element_bytes];
    if (has_any_bits(dtype)) {
      const std::uint64_t bits = random() | std::uint64_t{random()} << 32;
      std::memcpy(at, &bits, std::min<std::size_t>(element_bytes, 8));
    } else if (dtype == DType::complex64) {
      const float parts[2] = {std::uniform_real_distribution<float>()(random), static_cast<float>(random())};
      std::memcpy(at, parts, sizeof parts);
    } else if (dtype == DType::complex128) {
      const double parts[2] = {std::uniform_real_distribution<double>()(random), static_cast<double>(random())};
      std::memcpy(at, parts, sizeof parts);
    }
  }
  return bytes;
}

std::string hex(const std::byte* at, std::size_t count) {
  std::string text;
  for (std::size_t i = count; i-- > 0;) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[std::to_integer<int>(at[i]) >> 4];
    text += kDigits[std::to_integer<int>(at[i]) & 15];
  }
  return text;
}

// A long double has 10 significant bytes of 16. The other bytes are undefined.
void clear_padding(DType dtype, std::vector<std::byte>& elements) {
  if (dtype != DType::longdouble && dtype != DType::clongdouble) return;
  for (std::size_t i = 0; i < elements.size(); ++i)
    if (i % sizeof(long double) >= 10) elements[i] = {};
}

class EveryWidth : public testing::TestWithParam<Vectors> {
 protected:
  void SetUp() override {
    if (!has(GetParam())) GTEST_SKIP() << "this processor does not have these vectors";
  }
};

void compare(Vectors width, const Arithmetic& arithmetic, const std::vector<std::byte>& from,
             const std::vector<std::byte>& to) {
  std::vector<std::byte> plain = to;
  std::vector<std::byte> wide = to;
  reduce(Vectors::plain, arithmetic, from, plain);
  reduce(width, arithmetic, from, wide);
  clear_padding(arithmetic.dtype, plain);
  clear_padding(arithmetic.dtype, wide);
  if (plain == wide) return;
  const std::size_t element_bytes = size_bytes(arithmetic.dtype);
  for (std::size_t i = 0; i < to.size(); i += element_bytes)
    ASSERT_EQ(hex(&wide[i], element_bytes), hex(&plain[i], element_bytes))
        << name(arithmetic.op) << " of " << name(arithmetic.dtype) << ": element " << i / element_bytes << " is "
        << hex(&from[i], element_bytes) << " and " << hex(&to[i], element_bytes);
}

TEST_P(EveryWidth, GivesTheBitsOfTheOthers) {
  std::mt19937 random(7);
  for (int dtype = 0; dtype <= static_cast<int>(DType::bool8); ++dtype)
    for (int op = 0; op <= static_cast<int>(ReduceOp::maxloc); ++op) {
      const Arithmetic arithmetic{.dtype = static_cast<DType>(dtype), .op = static_cast<ReduceOp>(op)};
      if (!defined_for(arithmetic.op, arithmetic.dtype)) continue;
      const std::size_t element_bytes = size_bytes(arithmetic.dtype);
      for (const std::size_t count : {0, 1, 63, 64, 65, 127, 4096}) {
        const std::vector<std::byte> from = elements(arithmetic.dtype, count, random);
        std::vector<std::byte> to = elements(arithmetic.dtype, count, random);
        for (std::size_t i = 0; i < to.size(); i += element_bytes)
          if (is_nan(arithmetic.dtype, &from[i]) && is_nan(arithmetic.dtype, &to[i]))
            std::memset(&to[i], 1, element_bytes);
        compare(GetParam(), arithmetic, from, to);
        if (HasFailure()) return;
      }
    }
}

TEST_P(EveryWidth, GivesTheBitsOfTheOthersForEveryHalf) {
  std::mt19937 random(11);
  for (const DType dtype : {DType::float16, DType::bfloat16})
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max})
      for (int round = 0; round < 8; ++round) {
        std::vector<std::byte> from(2 << 16), to(2 << 16);
        for (std::uint32_t bits = 0; bits < 1u << 16; ++bits) {
          // The other operand is any half, a close one, or one of the largest: subnormals, ties and overflows.
          const auto noise = static_cast<std::uint32_t>(random());
          const std::uint32_t others[] = {noise, bits ^ (noise & 0x9fffu), 0x7bffu ^ (noise & 0x8003u)};
          const auto other = static_cast<std::uint16_t>(others[(noise >> 20) % 3]);
          const auto one = static_cast<std::uint16_t>(bits);
          std::memcpy(&from[2 * bits], &one, 2);
          std::memcpy(&to[2 * bits], &other, 2);
          if (is_nan(dtype, &from[2 * bits]) && is_nan(dtype, &to[2 * bits])) std::memset(&to[2 * bits], 1, 2);
        }
        compare(GetParam(), {.dtype = dtype, .op = op}, from, to);
        if (HasFailure()) return;
      }
}

INSTANTIATE_TEST_SUITE_P(Vectors, EveryWidth, testing::Values(Vectors::avx2, Vectors::avx512),
                         [](const auto& row) { return row.param == Vectors::avx2 ? "avx2" : "avx512"; });

TEST(Vectors, ThoseThatAreUsedAreThere) {
  EXPECT_TRUE(has(Vectors::plain));
  EXPECT_TRUE(has(widest_vectors()));
}

}  // namespace
}  // namespace penstock::kernels
