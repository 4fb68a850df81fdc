#include "kernels/reduce_sorted.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <complex>
#include <limits>
#include <optional>

#include "kernels/element.hpp"
#include "kernels/sort_rows.hpp"
#include "kernels/vectors.hpp"

namespace penstock::kernels {
namespace {

constexpr std::size_t kBlockBytes = 32 << 10;  // all rows together: they stay in the first-level cache
constexpr std::size_t kLineBytes = 64;

std::optional<Keys> keys_of(const Arithmetic& arithmetic) {
  if (arithmetic.user) return std::nullopt;
  const bool adds = arithmetic.op == ReduceOp::sum;  // adds real and imaginary parts separately
  switch (arithmetic.dtype) {
    case DType::float16:
    case DType::bfloat16: return Keys::magnitude16;
    case DType::float32: return Keys::magnitude32;
    case DType::float64: return Keys::magnitude64;
    case DType::complex64: return adds ? std::optional(Keys::magnitude32) : std::nullopt;
    case DType::complex128: return adds ? std::optional(Keys::magnitude64) : std::nullopt;
    default: return std::nullopt;
  }
}

// Clears padding bytes, which long doubles and pairs have.
template <class T>
void set_value(std::byte* to, T value) {
  if constexpr (std::is_same_v<T, long double> && std::numeric_limits<long double>::digits == 64) {
    std::memcpy(to, &value, 10);
    std::memset(to + 10, 0, sizeof(value) - 10);
  } else {
    std::memcpy(to, &value, sizeof value);
  }
}

template <class T>
void normalize_each(std::byte*, std::size_t) {}
template <>
void normalize_each<long double>(std::byte* row, std::size_t row_bytes) {
  for (std::byte* at = row; at < row + row_bytes; at += sizeof(long double)) {
    const auto value = load<long double>(at);
    set_value(at, std::isnan(value) ? std::numeric_limits<long double>::quiet_NaN() : value);
  }
}
template <>
void normalize_each<std::complex<long double>>(std::byte* row, std::size_t row_bytes) {
  normalize_each<long double>(row, row_bytes);
}
template <class L>
requires requires(L located) { located.place; }
void normalize_located(std::byte* row, std::size_t row_bytes) {
  for (std::byte* at = row; at < row + row_bytes; at += sizeof(L)) {
    const L located = load<L>(at);
    std::memset(at, 0, sizeof(L));
    set_value(at, located.value);
    set_value(at + (reinterpret_cast<const std::byte*>(&located.place) - reinterpret_cast<const std::byte*>(&located)),
              located.place);
  }
}

void normalize(DType dtype, std::byte* row, std::size_t row_bytes) {
  const auto run = [&]<class T>(std::type_identity<T>) {
    if constexpr (requires(T value) { value.place; })
      normalize_located<T>(row, row_bytes);
    else
      normalize_each<T>(row, row_bytes);
  };
  switch (dtype) {
#define PENSTOCK_DTYPE(name, type, size, numpy) \
  case DType::name:                             \
    return run(std::type_identity<type>{});
#define PENSTOCK_OTHER_DTYPE PENSTOCK_DTYPE
#include "penstock/dtypes.def"
#undef PENSTOCK_OTHER_DTYPE
#undef PENSTOCK_DTYPE
  }
}

template <class Bits>
void unify_nans(std::byte* row, std::size_t row_bytes, Bits infinity, Bits nan) {
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  for (std::byte* at = row; at < row + row_bytes; at += sizeof(Bits))
    if ((load<Bits>(at) & kMagnitude) > infinity) store(at, nan);
}

// The result of two NaNs is one of them; which one differs between instructions of a processor.
void unify_nans(DType dtype, std::byte* row, std::size_t row_bytes) {
  switch (dtype) {
    case DType::float16: return unify_nans<std::uint16_t>(row, row_bytes, 0x7c00, 0x7e00);
    case DType::bfloat16: return unify_nans<std::uint16_t>(row, row_bytes, 0x7f80, 0x7fc0);
    case DType::float32:
    case DType::complex64: return unify_nans<std::uint32_t>(row, row_bytes, 0x7f800000u, 0x7fc00000u);
    case DType::float64:
    case DType::complex128: return unify_nans<std::uint64_t>(row, row_bytes, 0x7ff0000000000000u, 0x7ff8000000000000u);
    default: return;
  }
}

void sort_by_bytes(const Rows& rows, std::size_t element_bytes) {
  std::vector<std::byte> column(rows.count * element_bytes);
  std::vector<const std::byte*> order(rows.count);
  for (std::size_t at = 0; at < rows.row_bytes; at += element_bytes) {
    for (std::size_t row = 0; row < rows.count; ++row) {
      order[row] = &column[row * element_bytes];
      std::memcpy(&column[row * element_bytes], rows.first + row * rows.stride_bytes + at, element_bytes);
    }
    std::ranges::sort(order,
                      [&](const std::byte* a, const std::byte* b) { return std::memcmp(a, b, element_bytes) < 0; });
    for (std::size_t row = 0; row < rows.count; ++row)
      std::memcpy(rows.first + row * rows.stride_bytes + at, order[row], element_bytes);
  }
}

struct AlignedMemory {
  std::vector<std::byte> bytes;
  std::byte* at_least(std::size_t size) {
    if (bytes.size() < size + kLineBytes) bytes.resize(size + kLineBytes);
    return bytes.data() + -reinterpret_cast<std::uintptr_t>(bytes.data()) % kLineBytes;
  }
};

}  // namespace

bool depends_on_order(DType dtype) {
  switch (dtype) {
    case DType::int8:
    case DType::int16:
    case DType::int32:
    case DType::int64:
    case DType::uint8:
    case DType::uint16:
    case DType::uint32:
    case DType::uint64:
    case DType::bool8:
    case DType::int16_int32:
    case DType::int32_int32:
    case DType::int64_int32: return false;
    default: return true;
  }
}

void reduce_sorted(const Arithmetic& arithmetic, std::span<const ConstBytes> parts, Bytes to) {
  assert(!parts.empty());
  if (to.empty()) return;
  const std::size_t element_bytes = arithmetic.user ? arithmetic.user->element_bytes : size_bytes(arithmetic.dtype);
  const bool has_order = arithmetic.user || depends_on_order(arithmetic.dtype);
  const std::optional<Keys> keys = keys_of(arithmetic);
  const Vectors vectors = widest_vectors();
  const std::size_t count = parts.size();
  // The conversion of 16-bit floats takes 64 elements at once.
  const std::size_t row_bytes = std::max<std::size_t>(kBlockBytes / count / 128 * 128, 128);
  const std::size_t block_bytes = std::max(row_bytes / element_bytes * element_bytes, element_bytes);
  const std::size_t stride_bytes = (block_bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
  // A user operation may itself reduce, on this thread.
  thread_local AlignedMemory kept;
  AlignedMemory memory = std::move(kept);
  std::byte* const first = memory.at_least(count * stride_bytes);
  std::vector<std::uint32_t> rows(count);
  for (std::size_t offset = 0; offset < to.size(); offset += block_bytes) {
    const std::size_t bytes = std::min(block_bytes, to.size() - offset);
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(first + i * stride_bytes, parts[i].data() + offset, bytes);
      if (has_order && !keys && !arithmetic.user) normalize(arithmetic.dtype, first + i * stride_bytes, bytes);
      rows[i] = static_cast<std::uint32_t>(i);
    }
    const Rows all{first, count, bytes, stride_bytes};
    if (has_order && keys)
      sort_columns(vectors, *keys, all);
    else if (has_order)
      sort_by_bytes(all, element_bytes);
    const auto row = [&](std::size_t index) { return Bytes(first + rows[index] * stride_bytes, bytes); };
    for (std::size_t width = count; width > 1; width = (width + 1) / 2) {
      for (std::size_t i = 0; i < width / 2; ++i) {
        reduce(arithmetic, row(2 * i), row(2 * i + 1));
        rows[i] = rows[2 * i + 1];
      }
      if (width % 2 == 1) rows[width / 2] = rows[width - 1];
    }
    const Bytes result = row(0);
    if (has_order && !arithmetic.user) {
      if (!keys) normalize(arithmetic.dtype, result.data(), bytes);
      unify_nans(arithmetic.dtype, result.data(), bytes);
    }
    std::memcpy(to.data() + offset, result.data(), bytes);
  }
  kept = std::move(memory);
}

}  // namespace penstock::kernels
