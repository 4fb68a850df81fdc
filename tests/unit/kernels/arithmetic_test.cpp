#include "kernels/arithmetic.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "penstock/error.hpp"

namespace penstock::kernels {
namespace {

template <class T>
ConstBytes bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}
template <class T>
Bytes bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

template <class T>
std::vector<T> reduced(DType dtype, ReduceOp op, std::vector<T> from, std::vector<T> to) {
  reduce({.dtype = dtype, .op = op}, bytes_of(std::as_const(from)), bytes_of(to));
  return to;
}

// The conformance suite covers every dtype and operation on small numbers. These tests cover the corner cases.
TEST(Reduce, IntegersWrap) {
  EXPECT_EQ(reduced<std::int32_t>(DType::int32, ReduceOp::sum, {2147483647}, {1}),
            std::vector{std::int32_t{-2147483647 - 1}});
  EXPECT_EQ(reduced<std::uint16_t>(DType::uint16, ReduceOp::prod, {65535}, {65535}), std::vector{std::uint16_t{1}});
  EXPECT_EQ(reduced<std::int8_t>(DType::int8, ReduceOp::prod, {100}, {100}), std::vector{std::int8_t{16}});
  EXPECT_EQ(reduced<std::int64_t>(DType::int64, ReduceOp::sum, {std::numeric_limits<std::int64_t>::min()}, {-1}),
            std::vector{std::numeric_limits<std::int64_t>::max()});
}

TEST(Reduce, LogicalOperationsGiveZeroOrOne) {
  EXPECT_EQ(reduced<std::int16_t>(DType::int16, ReduceOp::land, {6, 6, 0}, {9, 0, 0}),
            (std::vector<std::int16_t>{1, 0, 0}));
  EXPECT_EQ(reduced<std::uint8_t>(DType::uint8, ReduceOp::lor, {6, 0, 0}, {0, 9, 0}),
            (std::vector<std::uint8_t>{1, 1, 0}));
  EXPECT_EQ(reduced<std::int64_t>(DType::int64, ReduceOp::lxor, {6, 6, 0}, {9, 0, 0}),
            (std::vector<std::int64_t>{0, 1, 0}));
}

TEST(Reduce, KeepsTheOrderOfOperands) {
  // The operands are from (op) to: max and min return the first of equal values. Signed zeros distinguish the two.
  const std::vector<double> zero = reduced<double>(DType::float64, ReduceOp::max, {-0.0}, {0.0});
  EXPECT_TRUE(std::signbit(zero[0]));
}

TEST(Reduce, ComplexProduct) {
  using Complex = std::complex<double>;
  EXPECT_EQ(reduced<Complex>(DType::complex128, ReduceOp::prod, {{1, 2}}, {{3, -4}}), (std::vector<Complex>{{11, 2}}));
}

TEST(Reduce, WorksOnUnalignedMemoryOfAnyLength) {
  for (std::size_t count : {0u, 1u, 7u, 100u}) {
    std::vector<std::byte> from_memory(count * 4 + 3), to_memory(count * 4 + 1);
    for (std::size_t i = 0; i < count; ++i) {
      const auto a = static_cast<float>(i);
      const auto b = static_cast<float>(2 * i + 1);
      std::memcpy(&from_memory[3 + 4 * i], &a, 4);
      std::memcpy(&to_memory[1 + 4 * i], &b, 4);
    }
    reduce({.dtype = DType::float32}, std::span(from_memory).subspan(3), std::span(to_memory).subspan(1));
    for (std::size_t i = 0; i < count; ++i) {
      float sum;
      std::memcpy(&sum, &to_memory[1 + 4 * i], 4);
      EXPECT_EQ(sum, static_cast<float>(3 * i + 1));
    }
  }
}

TEST(Reduce, IsThereExactlyWhereDefined) {
  for (int dtype = 0; dtype <= static_cast<int>(DType::float64_float64); ++dtype)
    for (int op = 0; op <= static_cast<int>(ReduceOp::maxloc); ++op) {
      const Arithmetic arithmetic{.dtype = static_cast<DType>(dtype), .op = static_cast<ReduceOp>(op)};
      const std::size_t element_bytes = size_bytes(arithmetic.dtype);
      std::vector<std::byte> memory(2 * element_bytes);
      if (defined_for(arithmetic.op, arithmetic.dtype)) {
        reduce(arithmetic, std::span(memory).first(element_bytes), std::span(memory).last(element_bytes));
      } else {
#ifndef NDEBUG
        EXPECT_DEATH(reduce(arithmetic, {}, {}), "not defined");
#endif
      }
    }
}

template <class T>
struct Case {
  Arithmetic arithmetic;
  bool scaled;
  std::vector<T> from, to;
  std::vector<Block> blocks;

  T updated(T source, T target) const {
    if (!scaled) return source;
    if constexpr (requires { source.imag(); }) {
      const T factor(arithmetic.alpha);
      const T moved = factor * (arithmetic.conjugate ? std::conj(source) : source);
      return arithmetic.beta == 0.0 ? moved : moved + T(arithmetic.beta) * target;
    } else {
      const T moved = static_cast<T>(static_cast<T>(arithmetic.alpha.real()) * source);
      if (arithmetic.beta == 0.0) return moved;
      return static_cast<T>(moved + static_cast<T>(static_cast<T>(arithmetic.beta.real()) * target));
    }
  }

  std::vector<T> expected() const {
    std::vector<T> result = to;
    for (const Block& block : blocks)
      for (std::uint64_t row = 0; row < block.rows; ++row)
        for (std::uint64_t column = 0; column < block.columns; ++column) {
          const auto i = static_cast<std::int64_t>(row);
          const auto j = static_cast<std::int64_t>(column);
          const auto source = static_cast<std::int64_t>(block.from_offset_elems) + i * block.from_row_stride_elems +
                              j * block.from_column_stride_elems;
          const auto target = static_cast<std::int64_t>(block.to_offset_elems) + i * block.to_row_stride_elems +
                              j * block.to_column_stride_elems;
          T& element = result[static_cast<std::size_t>(target)];
          element = updated(from[static_cast<std::size_t>(source)], element);
        }
    return result;
  }

  void check() {
    const std::vector<T> wanted = expected();
    for (const Stores stores : {Stores::by_size, Stores::non_temporal}) {
      std::vector<T> target = to;
      transform(arithmetic, blocks, scaled, bytes_of(std::as_const(from)), bytes_of(target), stores);
      EXPECT_EQ(target, wanted);
    }
  }
};

template <class T>
std::vector<T> numbers(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<T> values(count);
  for (T& value : values) {
    value = static_cast<T>(static_cast<int>(random() % 100));
    if constexpr (requires { value.imag(); }) value = {value.real(), static_cast<typename T::value_type>(random() % 7)};
  }
  return values;
}

// A block of rows x columns inside larger matrices. Each side is stored by rows or by columns.
Block block_between(std::uint64_t rows, std::uint64_t columns, bool from_by_rows, bool to_by_rows, int gap) {
  Block block{.from_offset_elems = 5, .to_offset_elems = 3, .rows = rows, .columns = columns};
  const auto extra = static_cast<std::int64_t>(gap);
  const auto r = static_cast<std::int64_t>(rows);
  const auto c = static_cast<std::int64_t>(columns);
  block.from_row_stride_elems = from_by_rows ? c + extra : 1;
  block.from_column_stride_elems = from_by_rows ? 1 : r + extra;
  block.to_row_stride_elems = to_by_rows ? c + extra : 1;
  block.to_column_stride_elems = to_by_rows ? 1 : r + extra;
  return block;
}

template <class T>
void check_all_shapes(DType dtype) {
  const std::pair<std::uint64_t, std::uint64_t> shapes[] = {{1, 1},   {1, 70},  {70, 1}, {3, 5},
                                                            {33, 65}, {70, 31}, {0, 4}};
  for (const auto& [rows, columns] : shapes)
    for (const bool from_by_rows : {true, false})
      for (const bool to_by_rows : {true, false})
        for (const int gap : {0, 4})
          for (int mode = 0; mode < 4; ++mode) {
            SCOPED_TRACE(std::to_string(rows) + "x" + std::to_string(columns) + " mode " + std::to_string(mode));
            Arithmetic arithmetic{.dtype = dtype};
            if (mode >= 2) arithmetic.alpha = 3.0;
            if (mode == 3) arithmetic.beta = 2.0;
            Case<T>{arithmetic,
                    mode > 0,
                    numbers<T>(6000, 1),
                    numbers<T>(6000, 2),
                    {block_between(rows, columns, from_by_rows, to_by_rows, gap)}}
                .check();
          }
}

TEST(Transform, MovesAndScalesEveryShape) {
  check_all_shapes<std::int8_t>(DType::int8);
  check_all_shapes<std::uint16_t>(DType::uint16);
  check_all_shapes<float>(DType::float32);
  check_all_shapes<double>(DType::float64);
  check_all_shapes<std::complex<float>>(DType::complex64);
  check_all_shapes<std::complex<double>>(DType::complex128);
}

TEST(Transform, ComplexFactorsAndConjugation) {
  using Complex = std::complex<double>;
  for (const bool conjugate : {false, true})
    for (const Complex alpha : {Complex(1, 0), Complex(2, 0), Complex(2, -1)})
      for (const Complex beta : {Complex(0, 0), Complex(1, 0), Complex(0, 1)})
        for (const bool transposed : {false, true}) {
          Arithmetic arithmetic{.dtype = DType::complex128, .conjugate = conjugate, .alpha = alpha, .beta = beta};
          Case<Complex>{arithmetic,
                        true,
                        numbers<Complex>(3000, 1),
                        numbers<Complex>(3000, 2),
                        {block_between(40, 50, true, !transposed, 3)}}
              .check();
        }
}

TEST(Transform, HalvesAreComputedInFloat) {
  std::vector<std::uint16_t> from{0x3c00, 0x4000};  // 1 and 2
  std::vector<std::uint16_t> to{0x4200, 0x4400};    // 3 and 4
  const Block row{.rows = 1,
                  .columns = 2,
                  .from_row_stride_elems = 2,
                  .from_column_stride_elems = 1,
                  .to_row_stride_elems = 2,
                  .to_column_stride_elems = 1};
  transform({.dtype = DType::float16, .alpha = 0.5, .beta = 2.0}, {{row}}, true, bytes_of(std::as_const(from)),
            bytes_of(to));
  EXPECT_EQ(to, (std::vector<std::uint16_t>{0x4680, 0x4880}));  // 6.5 and 9
}

TEST(Transform, BackwardsAndScatteredStrides) {
  const Block reversed{.from_offset_elems = 59,
                       .to_offset_elems = 0,
                       .rows = 6,
                       .columns = 10,
                       .from_row_stride_elems = -10,
                       .from_column_stride_elems = -1,
                       .to_row_stride_elems = 10,
                       .to_column_stride_elems = 1};
  const Block scattered{.from_offset_elems = 1,
                        .to_offset_elems = 100,
                        .rows = 4,
                        .columns = 7,
                        .from_row_stride_elems = 2,
                        .from_column_stride_elems = 11,
                        .to_row_stride_elems = 50,
                        .to_column_stride_elems = 3};
  const Arithmetic plain{.dtype = DType::float64};
  const Arithmetic scaled{.dtype = DType::float64, .alpha = -1.0, .beta = 1.0};
  Case<double>{plain, false, numbers<double>(400, 1), numbers<double>(400, 2), {reversed, scattered}}.check();
  Case<double>{scaled, true, numbers<double>(400, 1), numbers<double>(400, 2), {reversed, scattered}}.check();
}

TEST(Transform, DoesNotReadTheTargetWhenBetaIsZero) {
  std::vector<double> from{1, 2, 3};
  std::vector<double> to(3, std::nan(""));
  const Block row{.rows = 1, .columns = 3, .from_column_stride_elems = 1, .to_column_stride_elems = 1};
  transform({.dtype = DType::float64, .alpha = 2.0}, {{row}}, true, bytes_of(std::as_const(from)), bytes_of(to));
  EXPECT_EQ(to, (std::vector<double>{2, 4, 6}));
}

TEST(Transform, RealFactorsKeepInfinities) {
  using Complex = std::complex<double>;
  std::vector<Complex> from{{std::numeric_limits<double>::infinity(), 1}};
  std::vector<Complex> to{{0, 0}};
  transform({.dtype = DType::complex128, .alpha = 2.0}, {{Block{.rows = 1, .columns = 1}}}, true,
            bytes_of(std::as_const(from)), bytes_of(to));
  EXPECT_EQ(to[0].real(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(to[0].imag(), 2);
}

TEST(Transform, IntegerFactorsMustBeIntegers) {
  EXPECT_NO_THROW(check_scaling({.dtype = DType::int32, .alpha = -3.0, .beta = 2.0}));
  EXPECT_NO_THROW(check_scaling({.dtype = DType::complex64, .alpha = {0.5, 0.5}}));
  EXPECT_NO_THROW(check_scaling({.dtype = DType::uint64, .alpha = 0x1p63}));
  for (const Arithmetic& wrong :
       {Arithmetic{.dtype = DType::int32, .alpha = 0.5}, Arithmetic{.dtype = DType::int64, .beta = 0x1p70},
        Arithmetic{.dtype = DType::uint8, .alpha = std::nan("")},
        Arithmetic{.dtype = DType::float64, .beta = {1, 1}}}) {
    try {
      check_scaling(wrong);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(error.message().find(name(wrong.dtype)), std::string::npos) << error.message();
    }
  }
}

}  // namespace
}  // namespace penstock::kernels
