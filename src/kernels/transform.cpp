#include <array>
#include <cassert>
#include <cmath>
#include <complex>
#include <string>
#include <utility>

#include "kernels/arithmetic.hpp"
#include "kernels/block.hpp"
#include "kernels/convert.hpp"
#include "kernels/copy.hpp"
#include "kernels/element.hpp"
#include "kernels/half.hpp"
#include "kernels/streaming.hpp"
#include "kernels/transpose.hpp"
#include "penstock/error.hpp"

namespace penstock::kernels {
namespace {

// The source of a block as contiguous rows.
struct SourceRows {
  const std::byte* from = nullptr;
  std::size_t count = 0;
  std::ptrdiff_t stride_bytes = 0;
  std::size_t size_bytes = 0;
};

// A block, arranged so that `inner` runs along the shorter stride of the target.
struct Loops {
  const std::byte* from;
  std::byte* to;
  std::size_t outer, inner;
  std::ptrdiff_t from_outer_bytes, from_inner_bytes;
  std::ptrdiff_t to_outer_bytes, to_inner_bytes;
  bool is_far;           // the source is larger than the caches
  bool streams;          // the target is: non-temporal stores
  SourceRows next = {};  // if is_far: the rows that are read after this block
};

Loops loops_over(const Block& block, ConstBytes from, Bytes to, std::size_t element_bytes) {
  const auto size = static_cast<std::ptrdiff_t>(element_bytes);
  Loops loops{from.data() + block.from_offset_elems * element_bytes,
              to.data() + block.to_offset_elems * element_bytes,
              block.rows,
              block.columns,
              block.from_row_stride_elems * size,
              block.from_column_stride_elems * size,
              block.to_row_stride_elems * size,
              block.to_column_stride_elems * size,
              from.size() >= kStreamedBytes,
              kCanStream && to.size() >= kStreamedBytes};
  const bool rows_are_inner = block.columns == 1 || (block.rows != 1 && std::abs(block.to_row_stride_elems) <
                                                                            std::abs(block.to_column_stride_elems));
  if (rows_are_inner) {
    std::swap(loops.outer, loops.inner);
    std::swap(loops.from_outer_bytes, loops.from_inner_bytes);
    std::swap(loops.to_outer_bytes, loops.to_inner_bytes);
  }
  return loops;
}

SourceRows source_rows(const Loops& loops, std::size_t element_bytes) {
  const auto size = static_cast<std::ptrdiff_t>(element_bytes);
  if (loops.from_inner_bytes == size || loops.inner == 1)
    return {loops.from, loops.outer, loops.from_outer_bytes, loops.inner * element_bytes};
  if (loops.from_outer_bytes == size)
    return {loops.from, loops.inner, loops.from_inner_bytes, loops.outer * element_bytes};
  return {};
}

/// `later` is a row that is read soon, if the source is far.
template <class T, class Update>
void update_row(const std::byte* __restrict from, std::byte* __restrict to, std::size_t count, const Update& update,
                const std::byte* later = nullptr) {
  if constexpr (Update::kIsMove) {
    if (Update::kStreams)
      stream_row(to, from, count * sizeof(T), later);
    else if (later != nullptr)
      copy_far_row(to, from, count * sizeof(T), later);
    else
      copy_bytes(to, from, count * sizeof(T));
  } else {
    if (later != nullptr) fetch_row(later, count * sizeof(T));
    for (std::size_t i = 0; i < count; ++i) update(load<T>(from + i * sizeof(T)), to + i * sizeof(T));
  }
}

template <class T, class Update>
void run(const Loops& loops, const Update& update, const LinesWork* lines = nullptr) {
  constexpr auto kSize = static_cast<std::ptrdiff_t>(sizeof(T));
  const auto row_bytes = static_cast<std::ptrdiff_t>(loops.inner) * kSize;
  const bool from_rows = loops.from_inner_bytes == kSize || loops.inner == 1;
  const bool to_rows = loops.to_inner_bytes == kSize || loops.inner == 1;
  if (from_rows && to_rows && loops.from_outer_bytes == row_bytes && loops.to_outer_bytes == row_bytes) {
    update_row<T>(loops.from, loops.to, loops.outer * loops.inner, update);
  } else if (from_rows && to_rows && loops.inner > 1) {
    const std::size_t row_size_bytes = loops.inner * sizeof(T);
    const std::size_t ahead = rows_ahead(row_size_bytes);
    const auto later_row = [&](std::size_t i) -> const std::byte* {
      if (!loops.is_far) return nullptr;
      if (i < loops.outer) return loops.from + static_cast<std::ptrdiff_t>(i) * loops.from_outer_bytes;
      i = std::min(i - loops.outer, loops.next.count);
      return loops.next.count == 0 ? loops.from
                                   : loops.next.from + static_cast<std::ptrdiff_t>(i) * loops.next.stride_bytes;
    };
    for (std::size_t i = 0; i < loops.outer; ++i) {
      const auto row = static_cast<std::ptrdiff_t>(i);
      if (Update::kStreams && i + kTargetRowsAhead < loops.outer)
        expect_row(loops.to + (row + static_cast<std::ptrdiff_t>(kTargetRowsAhead)) * loops.to_outer_bytes,
                   row_size_bytes);
      update_row<T>(loops.from + row * loops.from_outer_bytes, loops.to + row * loops.to_outer_bytes, loops.inner,
                    update, later_row(i + ahead));
    }
  } else if (sizeof(T) <= 16 && to_rows && loops.from_outer_bytes == kSize) {
    if constexpr (sizeof(T) <= 16) {  // of a register
      transpose<T, Update::kIsMove, Update::kStreams>(
          loops.from, loops.to, {loops.outer, loops.inner, loops.from_inner_bytes, loops.to_outer_bytes}, lines,
          {.streams = loops.streams, .is_far = loops.is_far},
          [&](const std::byte* from, std::byte* to, std::size_t count) { update_row<T>(from, to, count, update); });
      const std::size_t next_bytes = std::min(loops.next.size_bytes, kStagedRowBytes);
      for (std::size_t i = 0; i < std::min(loops.next.count, rows_ahead(next_bytes)); ++i)
        fetch_row(loops.next.from + static_cast<std::ptrdiff_t>(i) * loops.next.stride_bytes, next_bytes);
    }
  } else {
    for (std::size_t i = 0; i < loops.outer; ++i) {
      const std::byte* from = loops.from + static_cast<std::ptrdiff_t>(i) * loops.from_outer_bytes;
      std::byte* to = loops.to + static_cast<std::ptrdiff_t>(i) * loops.to_outer_bytes;
      for (std::size_t j = 0; j < loops.inner; ++j, from += loops.from_inner_bytes, to += loops.to_inner_bytes)
        update(load<T>(from), to);
    }
  }
}

template <class T, bool kStreamed>
struct Move {
  static constexpr bool kIsMove = true;
  static constexpr bool kStreams = kStreamed;
  void operator()(T value, std::byte* to) const { store(to, value); }
};

// to = alpha*from + beta*to for real types; Computed is the type of the arithmetic.
template <class T, class Computed, bool kReadsTarget>
struct Scale {
  static constexpr bool kIsMove = false;
  static constexpr bool kStreams = false;
  Computed alpha, beta;

  static Computed widen(T value) {
    if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>)
      return to_float(value);
    else
      return static_cast<Computed>(value);
  }
  static T narrow(Computed value) {
    if constexpr (std::is_same_v<T, Float16>)
      return to_float16(value);
    else if constexpr (std::is_same_v<T, BFloat16>)
      return to_bfloat16(value);
    else
      return static_cast<T>(value);
  }
  void operator()(T value, std::byte* to) const {
    Computed result = alpha * widen(value);
    if constexpr (kReadsTarget) result = result + beta * widen(load<T>(to));
    store(to, narrow(result));
  }
};

// The complex case. kRealFactors preserves infinities, which a multiplication by a zero imaginary part would turn into
// NaN.
template <class Real, bool kRealFactors, bool kReadsTarget>
struct ScaleComplex {
  static constexpr bool kIsMove = false;
  static constexpr bool kStreams = false;
  using T = std::complex<Real>;
  T alpha, beta;
  Real sign;  // of the source's imaginary part

  static T times(T factor, T value) {
    if constexpr (kRealFactors)
      return {factor.real() * value.real(), factor.real() * value.imag()};
    else
      return {factor.real() * value.real() - factor.imag() * value.imag(),
              factor.real() * value.imag() + factor.imag() * value.real()};
  }
  void operator()(T value, std::byte* to) const {
    T result = times(alpha, {value.real(), sign * value.imag()});
    if constexpr (kReadsTarget) result += times(beta, load<T>(to));
    store(to, result);
  }
};

template <class T>
Wrapping<T> to_wrapping(double value) {
  return value < 0 ? static_cast<Wrapping<T>>(static_cast<std::int64_t>(value))
                   : static_cast<Wrapping<T>>(static_cast<std::uint64_t>(value));
}

template <class T>
struct Scaler {
  static void apply(const Arithmetic& arithmetic, const Loops& loops) {
    const double alpha = arithmetic.alpha.real();
    const double beta = arithmetic.beta.real();
    if constexpr (std::is_integral_v<T>)
      with(to_wrapping<T>(alpha), to_wrapping<T>(beta), loops);
    else if constexpr (std::is_same_v<T, double> || std::is_same_v<T, long double>)
      with(static_cast<T>(alpha), static_cast<T>(beta), loops);
    else
      with(static_cast<float>(alpha), static_cast<float>(beta), loops);
  }

 private:
  template <class Computed>
  static void with(Computed alpha, Computed beta, const Loops& loops) {
    const bool reads_target = beta != Computed{};
    const LinesWork* lines = nullptr;
    LinesWork work{};
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
      work = {std::is_same_v<T, float> ? LineWork::scale_float32 : LineWork::scale_float64,
              reads_target,
              {.alpha_real = alpha, .beta_real = beta}};
      lines = &work;
    }
    if (reads_target)
      run<T>(loops, Scale<T, Computed, true>{alpha, beta}, lines);
    else
      run<T>(loops, Scale<T, Computed, false>{alpha, beta}, lines);
  }
};

template <class Real>
struct Scaler<std::complex<Real>> {
  static void apply(const Arithmetic& arithmetic, const Loops& loops) {
    if (arithmetic.alpha.imag() == 0 && arithmetic.beta.imag() == 0)
      with<true>(arithmetic, loops);
    else
      with<false>(arithmetic, loops);
  }

 private:
  template <bool kRealFactors>
  static void with(const Arithmetic& arithmetic, const Loops& loops) {
    const std::complex<Real> alpha(arithmetic.alpha);
    const std::complex<Real> beta(arithmetic.beta);
    const Real sign = arithmetic.conjugate ? Real{-1} : Real{1};
    const LinesWork* lines = nullptr;
    LinesWork work{};
    if constexpr (!std::is_same_v<Real, long double>) {
      constexpr bool kIsSingle = std::is_same_v<Real, float>;
      constexpr LineWork kScale = kIsSingle ? LineWork::scale_complex64 : LineWork::scale_complex128;
      constexpr LineWork kMultiply = kIsSingle ? LineWork::multiply_complex64 : LineWork::multiply_complex128;
      work = {kRealFactors ? kScale : kMultiply,
              arithmetic.beta != 0.0,
              {.alpha_real = alpha.real(),
               .alpha_imag = alpha.imag(),
               .beta_real = beta.real(),
               .beta_imag = beta.imag(),
               .sign = sign}};
      lines = &work;
    }
    if (arithmetic.beta == 0.0)
      run<std::complex<Real>>(loops, ScaleComplex<Real, kRealFactors, false>{alpha, beta, sign}, lines);
    else
      run<std::complex<Real>>(loops, ScaleComplex<Real, kRealFactors, true>{alpha, beta, sign}, lines);
  }
};

void scale(const Arithmetic& arithmetic, const Loops& loops) {
  switch (arithmetic.dtype) {
#define PENSTOCK_DTYPE(name, type, size, numpy) \
  case DType::name:                             \
    return Scaler<type>::apply(arithmetic, loops);
#include "penstock/dtypes.def"
#undef PENSTOCK_DTYPE
    default: assert(false && "check_scaling() refuses what is no number");
  }
}

template <std::size_t kBytes>
using Opaque = std::array<std::byte, kBytes>;

template <bool kStreams>
void move(std::size_t element_bytes, const Loops& loops) {
  const LinesWork lines{element_bytes == 4   ? LineWork::move_4
                        : element_bytes == 8 ? LineWork::move_8
                                             : LineWork::move_16};
  const bool has_lines = element_bytes == 4 || element_bytes == 8 || element_bytes == 16;
  const auto run_as = [&]<class T>(T) { run<T>(loops, Move<T, kStreams>{}, has_lines ? &lines : nullptr); };
  switch (element_bytes) {
    case 1: return run_as(Opaque<1>{});
    case 2: return run_as(std::uint16_t{});
    case 4: return run_as(std::uint32_t{});
    case 8: return run_as(std::uint64_t{});
    case 16: return run_as(Opaque<16>{});
    case 32: return run_as(Opaque<32>{});
    default: assert(false && "no such element size in dtypes.def");
  }
}

/// How many blocks, from the first on, are adjacent in the source. Row by row they are one contiguous range, which is
/// faster to read than parts that are a row apart.
std::size_t count_adjoining(std::span<const Block> blocks) {
  const Block& first = blocks.front();
  if (first.rows < 2 || first.from_row_stride_elems <= 0) return 1;
  const std::uint64_t limit = first.from_offset_elems + static_cast<std::uint64_t>(first.from_row_stride_elems);
  std::uint64_t end = first.from_offset_elems;
  std::size_t count = 0;
  for (; count < blocks.size(); ++count) {
    const Block& block = blocks[count];
    if (block.rows != first.rows || block.columns == 0 || block.from_row_stride_elems != first.from_row_stride_elems ||
        block.from_column_stride_elems != 1 || block.to_column_stride_elems != 1 || block.from_offset_elems != end ||
        end + block.columns > limit)
      break;
    end += block.columns;
  }
  return std::max<std::size_t>(count, 1);
}

/// Moves such blocks of a far source. `next` are the rows that are read after them.
void move_adjoining(std::span<const Block> blocks, std::size_t element_bytes, ConstBytes from, Bytes to, bool streams,
                    const SourceRows& next) {
  const auto size = static_cast<std::ptrdiff_t>(element_bytes);
  const auto source = [&](std::size_t row, std::size_t i) {
    return from.data() + blocks[i].from_offset_elems * element_bytes +
           static_cast<std::ptrdiff_t>(row) * blocks[i].from_row_stride_elems * size;
  };
  const auto target = [&](std::size_t row, std::size_t i) {
    return to.data() + blocks[i].to_offset_elems * element_bytes +
           static_cast<std::ptrdiff_t>(row) * blocks[i].to_row_stride_elems * size;
  };
  struct Place {  // of a piece of a row
    std::size_t row, block;
    void go_on(std::size_t count) {
      if (++block == count) {
        block = 0;
        ++row;
      }
    }
  };
  const std::size_t count = blocks.size();
  const std::size_t rows = blocks[0].rows;
  const std::size_t ahead = rows_ahead(blocks[0].columns * element_bytes);
  Place fetched{ahead / count, ahead % count};
  Place expected{kTargetRowsAhead / count, kTargetRowsAhead % count};
  for (Place at{0, 0}; at.row < rows; at.go_on(count), fetched.go_on(count), expected.go_on(count)) {
    const std::size_t size_bytes = blocks[at.block].columns * element_bytes;
    const std::byte* later = source(at.row, at.block);
    if (fetched.row < rows)
      later = source(fetched.row, fetched.block);
    else if (next.count > 0)
      later = next.from + static_cast<std::ptrdiff_t>(std::min(fetched.row - rows, next.count - 1)) * next.stride_bytes;
    if (streams) {
      if (expected.row < rows)
        expect_row(target(expected.row, expected.block), blocks[expected.block].columns * element_bytes);
      stream_row(target(at.row, at.block), source(at.row, at.block), size_bytes, later);
    } else {
      copy_far_row(target(at.row, at.block), source(at.row, at.block), size_bytes, later);
    }
  }
}

void check_factor(DType dtype, std::complex<double> factor, const char* what) {
  const auto reject = [&](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, std::string(what) + " is (" + std::to_string(factor.real()) + ", " +
                                                 std::to_string(factor.imag()) + "), but " + why + " for dtype " +
                                                 std::string(name(dtype)));
  };
  if (is_complex(dtype)) return;
  if (factor.imag() != 0) reject("its imaginary part must be zero");
  if (dtype > DType::uint64) return;
  if (factor.real() != std::trunc(factor.real())) reject("it must be a whole number");
  if (!(factor.real() > -0x1p63 && factor.real() < 0x1p64)) reject("it must be less than 2^63 in magnitude");
}

}  // namespace

bool is_move(const Arithmetic& arithmetic, DType dtype, bool scaled) {
  return !scaled || (arithmetic.alpha == 1.0 && arithmetic.beta == 0.0 && !(arithmetic.conjugate && is_complex(dtype)));
}

DType wire_dtype(DType input, DType output) { return size_bytes(output) < size_bytes(input) ? output : input; }

void transform(const Arithmetic& arithmetic, const ElementTypes& types, std::span<const Block> blocks, bool scaled,
               ConstBytes from, Bytes to, Stores stores) {
  Arithmetic same_type = arithmetic;
  same_type.dtype = types.to;
  if (types.from == types.to) return transform(same_type, blocks, scaled, from, to, stores);
  const Convert convert = conversion(types.from, types.to);
  assert(convert != nullptr && "the planner refuses such conversions");
  // Converts parts of a block that fit in the first-level cache to dense blocks of the other type.
  constexpr std::size_t kPartBytes = 16 << 10;
  alignas(64) std::byte part[kPartBytes];
  const auto from_bytes = static_cast<std::ptrdiff_t>(size_bytes(types.from));
  const std::size_t to_bytes = size_bytes(types.to);
  const std::size_t part_elems = kPartBytes / to_bytes;
  for (const Block& given : blocks) {
    if (given.rows == 0 || given.columns == 0) continue;
    const Block block = columns_first(given);
    const std::uint64_t part_columns = std::min<std::uint64_t>(block.columns, part_elems);
    const std::uint64_t part_rows = std::min<std::uint64_t>(block.rows, part_elems / part_columns);
    for (std::uint64_t row = 0; row < block.rows; row += part_rows)
      for (std::uint64_t column = 0; column < block.columns; column += part_columns) {
        const std::uint64_t rows = std::min(part_rows, block.rows - row);
        const std::uint64_t columns = std::min(part_columns, block.columns - column);
        const auto offset = [&](std::uint64_t begin, std::int64_t row_stride, std::int64_t column_stride) {
          return static_cast<std::int64_t>(begin) + static_cast<std::int64_t>(row) * row_stride +
                 static_cast<std::int64_t>(column) * column_stride;
        };
        const std::byte* source =
            from.data() +
            offset(block.from_offset_elems, block.from_row_stride_elems, block.from_column_stride_elems) * from_bytes;
        for (std::uint64_t i = 0; i < rows; ++i, source += block.from_row_stride_elems * from_bytes)
          convert(source, block.from_column_stride_elems * from_bytes, part + i * columns * to_bytes, columns);
        const Block dense{.from_offset_elems = 0,
                          .to_offset_elems = static_cast<std::uint64_t>(
                              offset(block.to_offset_elems, block.to_row_stride_elems, block.to_column_stride_elems)),
                          .rows = rows,
                          .columns = columns,
                          .from_row_stride_elems = static_cast<std::int64_t>(columns),
                          .from_column_stride_elems = 1,
                          .to_row_stride_elems = block.to_row_stride_elems,
                          .to_column_stride_elems = block.to_column_stride_elems};
        transform(same_type, {&dense, 1}, scaled, ConstBytes(part, rows * columns * to_bytes), to, stores);
      }
  }
}

void transform(const Arithmetic& arithmetic, std::span<const Block> blocks, bool scaled, ConstBytes from, Bytes to,
               Stores stores) {
  const std::size_t element_bytes = size_bytes(arithmetic.dtype);
  const bool moves = is_move(arithmetic, arithmetic.dtype, scaled);
  const bool streams = kCanStream && (stores == Stores::non_temporal || to.size() >= kStreamedBytes);
  const bool is_far = from.size() >= kStreamedBytes;
  std::size_t count = 1;
  for (std::size_t i = 0; i < blocks.size(); i += count) {
    const Block& block = blocks[i];
    count = moves && is_far ? count_adjoining(blocks.subspan(i)) : 1;
    if (block.rows == 0 || block.columns == 0) continue;
    Loops loops = loops_over(block, from, to, element_bytes);
    if (loops.is_far && i + count < blocks.size())
      loops.next = source_rows(loops_over(blocks[i + count], from, to, element_bytes), element_bytes);
    if (count > 1)
      move_adjoining(blocks.subspan(i, count), element_bytes, from, to, streams, loops.next);
    else if (moves && streams)
      move<true>(element_bytes, loops);
    else if (moves)
      move<false>(element_bytes, loops);
    else
      scale(arithmetic, loops);
  }
  if (streams) end_streaming();
}

void check_conversion(DType from, DType to) {
  if (from != to && conversion(from, to) == nullptr)
    throw Error(ErrorCode::invalid_argument, "elements of " + std::string(name(from)) + " cannot become " +
                                                 std::string(name(to)) +
                                                 "; expected a complex target if the source is complex, and a floating "
                                                 "point one if the source is floating point");
}

void check_scaling(const Arithmetic& arithmetic) {
  if (!is_number(arithmetic.dtype) && (arithmetic.alpha != 1.0 || arithmetic.beta != 0.0))
    throw Error(ErrorCode::invalid_argument, "alpha and beta must be 1 and 0 for elements of dtype " +
                                                 std::string(name(arithmetic.dtype)) + ", which is not a number");
  check_factor(arithmetic.dtype, arithmetic.alpha, "alpha");
  check_factor(arithmetic.dtype, arithmetic.beta, "beta");
}

}  // namespace penstock::kernels
