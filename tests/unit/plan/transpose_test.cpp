// Transpositions of every element size and shape around the squares, parts and pages that the kernel works in.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "plan/arithmetic.hpp"
#include "plan/streaming.hpp"

namespace penstock::plan {
namespace {

struct Shape {
  std::uint64_t rows, columns;
};

void expect_transposed(DType dtype, Shape shape, std::size_t padding, std::size_t misalignment) {
  const std::size_t size = size_bytes(dtype);
  const std::size_t from_stride = shape.columns + padding;
  const std::size_t to_stride = shape.rows + 2 * padding;
  std::vector<std::byte> from(misalignment + shape.rows * from_stride * size);
  std::vector<std::byte> to(misalignment + shape.columns * to_stride * size, std::byte{0xee});
  std::mt19937 random(static_cast<unsigned>(shape.rows * 1000 + shape.columns));
  for (std::byte& byte : from) byte = static_cast<std::byte>(random());
  const Block block{.rows = shape.rows,
                    .columns = shape.columns,
                    .from_row_stride_elems = static_cast<std::int64_t>(from_stride),
                    .from_column_stride_elems = 1,
                    .to_row_stride_elems = 1,
                    .to_column_stride_elems = static_cast<std::int64_t>(to_stride)};
  transform({.dtype = dtype}, {&block, 1}, false, ConstBytes(from).subspan(misalignment),
            Bytes(to).subspan(misalignment));
  for (std::uint64_t j = 0; j < shape.columns; ++j) {
    for (std::uint64_t i = 0; i < shape.rows; ++i)
      if (std::memcmp(&to[misalignment + (j * to_stride + i) * size],
                      &from[misalignment + (i * from_stride + j) * size], size) != 0)
        FAIL() << "element " << i << ", " << j << " of " << shape.rows << " x " << shape.columns;
    if (j + 1 == shape.columns) break;
    for (std::size_t k = shape.rows; k < to_stride; ++k)
      ASSERT_EQ(to[misalignment + (j * to_stride + k) * size], std::byte{0xee}) << "padding was overwritten";
  }
}

TEST(Transpose, EveryElementSizeAndShape) {
  const DType dtypes[] = {DType::int8, DType::int16, DType::float32, DType::float64, DType::complex128};
  for (const DType dtype : dtypes)
    for (const Shape shape :
         {Shape{1, 7}, {7, 1}, {2, 2}, {8, 8}, {15, 17}, {16, 16}, {31, 65}, {64, 64}, {67, 129}, {128, 32}})
      for (const std::size_t padding : {0, 3}) expect_transposed(dtype, shape, padding, padding);
  expect_transposed(DType::float64, {515, 530}, 0, 0);
  expect_transposed(DType::complex128, {260, 300}, 1, 1);
}

TEST(Transpose, LargeTargetsPastTheCaches) {
  const DType dtypes[] = {DType::int8, DType::int16, DType::float32, DType::float64, DType::complex128};
  for (const DType dtype : dtypes) {
    const std::uint64_t columns = kStreamedBytes / size_bytes(dtype) / 512 + 3;
    // Rows of whole lines at a border of one, beside it by whole elements, beside it by none; and rows in between.
    for (const std::size_t misalignment : {0, 16, 3}) {
      expect_transposed(dtype, {512, columns}, 0, misalignment);
      expect_transposed(dtype, {515, columns}, 0, misalignment);
    }
    expect_transposed(dtype, {517, columns}, 1, 8);
  }
}

TEST(Transpose, LargeRowsPastTheCaches) {
  constexpr std::size_t kRows = 40;
  constexpr std::size_t kStride = kStreamedBytes / kRows + 64;
  for (const std::size_t row_bytes :
       {std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{200}, kStride - 7}) {
    std::vector<std::byte> from(kRows * row_bytes);
    std::vector<std::byte> to(kRows * kStride + 5, std::byte{0xee});
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 31);
    const Block block{.to_offset_elems = 5,
                      .rows = kRows,
                      .columns = row_bytes,
                      .from_row_stride_elems = static_cast<std::int64_t>(row_bytes),
                      .from_column_stride_elems = 1,
                      .to_row_stride_elems = kStride,
                      .to_column_stride_elems = 1};
    transform({.dtype = DType::uint8}, {&block, 1}, true, from, to);
    for (std::size_t row = 0; row < kRows; ++row) {
      const std::size_t at = row * kStride + 5;
      ASSERT_EQ(std::memcmp(&to[at], &from[row * row_bytes], row_bytes), 0);
      ASSERT_EQ(to[at - 1], std::byte{0xee});
      ASSERT_EQ(to[at + row_bytes], std::byte{0xee});
    }
  }
}

TEST(Transpose, ComputesWhileItTransposes) {
  for (const Shape shape : {Shape{3, 5}, {32, 32}, {65, 70}, {600, 40}}) {
    std::vector<float> from(shape.rows * shape.columns);
    std::vector<float> to(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      from[i] = static_cast<float>(i % 1000);
      to[i] = static_cast<float>(i % 77);
    }
    const std::vector<float> before = to;
    const Block block{.rows = shape.rows,
                      .columns = shape.columns,
                      .from_row_stride_elems = static_cast<std::int64_t>(shape.columns),
                      .from_column_stride_elems = 1,
                      .to_row_stride_elems = 1,
                      .to_column_stride_elems = static_cast<std::int64_t>(shape.rows)};
    transform({.dtype = DType::float32, .alpha = 2.0, .beta = 3.0}, {&block, 1}, true, std::as_bytes(std::span(from)),
              std::as_writable_bytes(std::span(to)));
    for (std::size_t i = 0; i < shape.rows; ++i)
      for (std::size_t j = 0; j < shape.columns; ++j)
        ASSERT_EQ(to[j * shape.rows + i], 2 * from[i * shape.columns + j] + 3 * before[j * shape.rows + i]);
  }
}

}  // namespace
}  // namespace penstock::plan
