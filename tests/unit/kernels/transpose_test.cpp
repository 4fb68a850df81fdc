// Transpositions of every element size, with shapes around the kernel's units of work: squares, parts and pages.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/arithmetic.hpp"
#include "kernels/streaming.hpp"
#include "kernels/transpose_kernels.hpp"
#include "kernels/vectors.hpp"

namespace penstock::kernels {
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

// The other tests use only the processor's widest vectors.
TEST(Transpose, MovesByAllVectorsThatTheProcessorHas) {
  const struct {
    LineWork work;
    std::size_t size;
  } moves[] = {{LineWork::move_4, 4}, {LineWork::move_8, 8}, {LineWork::move_16, 16}};
  for (const Vectors vectors : {Vectors::plain, Vectors::avx2, Vectors::avx512})
    for (const auto& [work, size] : moves)
      for (const LineStore store : {LineStore::plain, LineStore::streamed}) {
        const TransposeKernel kernel = has(vectors) ? transpose_kernel(vectors, work, store) : TransposeKernel{};
        if (kernel.run == nullptr) continue;
        SCOPED_TRACE(testing::Message() << "vectors " << static_cast<int>(vectors) << ", " << size << " bytes, store "
                                        << static_cast<int>(store));
        const std::size_t outer = 3 * kernel.outer;
        const std::size_t inner = 5 * kernel.inner;
        const std::size_t from_stride = outer * size + 24;
        const std::size_t to_stride = (inner * size + 2 * kLineBytes - 1) / kLineBytes * kLineBytes;
        std::vector<std::byte> from(inner * from_stride);
        std::mt19937 random(7);
        for (std::byte& byte : from) byte = static_cast<std::byte>(random());
        std::vector<std::byte> memory(outer * to_stride + kLineBytes, std::byte{0xee});
        std::byte* const to = memory.data() + -reinterpret_cast<std::uintptr_t>(memory.data()) % kLineBytes;
        kernel.run(from.data(), to,
                   {outer, inner, static_cast<std::ptrdiff_t>(from_stride), static_cast<std::ptrdiff_t>(to_stride)},
                   {});
        end_streaming();
        for (std::size_t i = 0; i < outer; ++i) {
          for (std::size_t j = 0; j < inner; ++j)
            ASSERT_EQ(std::memcmp(to + i * to_stride + j * size, &from[j * from_stride + i * size], size), 0)
                << "element " << i << ", " << j;
          for (std::size_t at = inner * size; at < to_stride; ++at) ASSERT_EQ(to[i * to_stride + at], std::byte{0xee});
        }
      }
}

TEST(Transpose, LargeTargetsPastTheCaches) {
  const DType dtypes[] = {DType::int8, DType::int16, DType::float32, DType::float64, DType::complex128};
  for (const DType dtype : dtypes) {
    const std::uint64_t columns = kStreamedBytes / size_bytes(dtype) / 512 + 3;
    // Target rows begin at a cache line, whole elements after one, or at no multiple of an element. Their lengths are
    // whole cache lines, and lengths in between.
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

TEST(Transpose, RowsOfAFarSource) {
  constexpr std::size_t kRows = 37;
  constexpr std::size_t kStride = kStreamedBytes / kRows / 2 + 5;
  std::vector<std::byte> from(2 * kRows * kStride);
  std::mt19937 random(7);
  for (std::byte& byte : from) byte = static_cast<std::byte>(random());
  ASSERT_GE(from.size(), kStreamedBytes);
  for (const std::size_t row_bytes : {1, 63, 64, 200, 1024, 1100}) {
    // Two blocks: the end of the first prefetches from the second. The targets are small packages and far memory.
    for (const std::size_t to_stride : {row_bytes, kStride}) {
      std::vector<std::byte> to(2 * kRows * to_stride + 3, std::byte{0xee});
      std::vector<Block> blocks;
      for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{kRows}})
        blocks.push_back({.from_offset_elems = first * kStride + 11,
                          .to_offset_elems = first * to_stride + 3,
                          .rows = kRows,
                          .columns = row_bytes,
                          .from_row_stride_elems = kStride,
                          .from_column_stride_elems = 1,
                          .to_row_stride_elems = static_cast<std::int64_t>(to_stride),
                          .to_column_stride_elems = 1});
      transform({.dtype = DType::uint8}, blocks, false, from, to);
      for (std::size_t row = 0; row < 2 * kRows; ++row)
        ASSERT_EQ(std::memcmp(&to[row * to_stride + 3], &from[row * kStride + 11], row_bytes), 0)
            << "row " << row << " of " << row_bytes << " bytes";
      ASSERT_EQ(to[2], std::byte{0xee});
      if (to_stride > row_bytes) {
        ASSERT_EQ(to[to_stride + 2], std::byte{0xee});
      }
    }
  }
}

TEST(Transpose, BlocksSideBySideInAFarSource) {
  constexpr std::size_t kRows = 37;
  constexpr std::size_t kStride = kStreamedBytes / kRows + 5;
  std::vector<std::byte> from(kRows * kStride + 2000);
  std::mt19937 random(8);
  for (std::byte& byte : from) byte = static_cast<std::byte>(random());
  // Adjacent blocks, a block after a gap, a block that reaches into the next row, and blocks of fewer rows.
  struct Part {
    std::size_t offset, columns, rows;
  };
  const std::vector<Part> parts = {{7, 256, kRows},
                                   {263, 64, kRows},
                                   {327, 1, kRows},
                                   {328, 300, kRows},
                                   {700, 512, kRows},
                                   {1212, 90, kRows},
                                   {1302, 90, 20},
                                   {1392, 90, 20},
                                   {1482, 0, kRows},
                                   {1482, 70, kRows},
                                   {1552, 70, 1},
                                   {1622, 33, kRows},
                                   {1655, kStride - 20, kRows}};
  for (const std::size_t least_bytes : {std::size_t{0}, kStreamedBytes}) {
    std::vector<Block> blocks;
    std::size_t end = 3;
    for (const Part& part : parts) {
      blocks.push_back({.from_offset_elems = part.offset,
                        .to_offset_elems = end,
                        .rows = part.rows,
                        .columns = part.columns,
                        .from_row_stride_elems = kStride,
                        .from_column_stride_elems = 1,
                        .to_row_stride_elems = static_cast<std::int64_t>(part.columns + 2),
                        .to_column_stride_elems = 1});
      end += part.rows * (part.columns + 2);
    }
    // The last block alone is large enough to count as far.
    if (least_bytes == 0) blocks.pop_back();
    std::vector<std::byte> expected(
        std::max(least_bytes, least_bytes == 0 ? blocks.back().to_offset_elems + 5000 : end), std::byte{0xee});
    std::vector<std::byte> to = expected;
    for (const Block& block : blocks)
      for (std::size_t row = 0; row < block.rows; ++row)
        std::memcpy(&expected[block.to_offset_elems + row * static_cast<std::size_t>(block.to_row_stride_elems)],
                    &from[block.from_offset_elems + row * kStride], block.columns);
    ASSERT_EQ(to.size() >= kStreamedBytes, least_bytes > 0);
    transform({.dtype = DType::uint8}, blocks, false, from, to);
    ASSERT_TRUE(to == expected);
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

// A kernel for whole cache lines must give the same bits as the scalar code for single elements.
void expect_scaled(DType dtype, Shape shape, const Arithmetic& arithmetic, std::size_t padding) {
  const std::size_t size = size_bytes(dtype);
  const std::size_t reals = (dtype == DType::float32 || dtype == DType::complex64) ? sizeof(float) : sizeof(double);
  const std::size_t to_stride = shape.rows + padding;
  std::mt19937 random(static_cast<unsigned>(shape.rows * 31 + shape.columns));
  std::uniform_real_distribution<double> numbers(-3, 3);
  const auto fill = [&](std::vector<std::byte>& memory) {
    for (std::size_t at = 0; at + reals <= memory.size(); at += reals) {
      const double number = numbers(random);
      const auto single = static_cast<float>(number);
      if (reals == sizeof(float))
        std::memcpy(&memory[at], &single, reals);
      else
        std::memcpy(&memory[at], &number, reals);
    }
  };
  std::vector<std::byte> from(shape.rows * shape.columns * size);
  std::vector<std::byte> to(shape.columns * to_stride * size);
  fill(from);
  fill(to);
  std::vector<std::byte> expected = to;
  for (std::uint64_t i = 0; i < shape.rows; ++i)
    for (std::uint64_t j = 0; j < shape.columns; ++j) {
      const Block one{.from_offset_elems = i * shape.columns + j,
                      .to_offset_elems = j * to_stride + i,
                      .rows = 1,
                      .columns = 1,
                      .from_row_stride_elems = 1,
                      .from_column_stride_elems = 1,
                      .to_row_stride_elems = 1,
                      .to_column_stride_elems = 1};
      transform(arithmetic, {&one, 1}, true, from, expected);
    }
  const Block block{.rows = shape.rows,
                    .columns = shape.columns,
                    .from_row_stride_elems = static_cast<std::int64_t>(shape.columns),
                    .from_column_stride_elems = 1,
                    .to_row_stride_elems = 1,
                    .to_column_stride_elems = static_cast<std::int64_t>(to_stride)};
  transform(arithmetic, {&block, 1}, true, from, to);
  ASSERT_EQ(std::memcmp(to.data(), expected.data(), to.size()), 0)
      << name(dtype) << ", " << shape.rows << " x " << shape.columns << ", alpha " << arithmetic.alpha << ", beta "
      << arithmetic.beta << ", conjugate " << arithmetic.conjugate;
}

TEST(Transpose, ComputesTheSameByLinesAsByElements) {
  using Factor = std::complex<double>;
  for (const DType dtype : {DType::float32, DType::float64, DType::complex64, DType::complex128}) {
    const bool complex = is_complex(dtype);
    const std::uint64_t columns = kStreamedBytes / size_bytes(dtype) / 512 + 3;
    for (const Factor alpha : {Factor{2.5}, complex ? Factor{0.3, -1.7} : Factor{-1}})
      for (const Factor beta : {Factor{}, Factor{0.7}, complex ? Factor{1.1, 0.2} : Factor{1}})
        for (const bool conjugate : {false, complex}) {
          const Arithmetic arithmetic{.dtype = dtype, .conjugate = conjugate, .alpha = alpha, .beta = beta};
          for (const Shape shape : {Shape{8, 16}, {16, 8}, {31, 47}, {64, 130}})
            for (const std::size_t padding : {0, 5}) expect_scaled(dtype, shape, arithmetic, padding);
          if (beta == 0.0 && conjugate == complex) expect_scaled(dtype, {512, columns}, arithmetic, 0);
        }
  }
}

}  // namespace
}  // namespace penstock::kernels
