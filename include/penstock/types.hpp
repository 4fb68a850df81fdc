// Element types, reduction operations and byte spans that every part of Penstock shares.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "penstock/export.hpp"

namespace penstock {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

/// IEEE binary16 and bfloat16 as bits; arithmetic happens in float.
struct Float16 {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

/// A truth value: zero is false.
struct Bool8 {
  std::uint8_t value;
};

/// The pair that minloc and maxloc combine: a value and its index.
template <class Value, class Place>
struct Located {
  Value value;
  Place place;
};
using Float32Int32 = Located<float, std::int32_t>;
using Float64Int32 = Located<double, std::int32_t>;
using LongDoubleInt32 = Located<long double, std::int32_t>;
using Int16Int32 = Located<std::int16_t, std::int32_t>;
using Int32Int32 = Located<std::int32_t, std::int32_t>;
using Int64Int32 = Located<std::int64_t, std::int32_t>;
using Float32Float32 = Located<float, float>;
using Float64Float64 = Located<double, double>;

enum class DType : std::uint8_t {
#define PENSTOCK_DTYPE(name, type, size, numpy) name,
#define PENSTOCK_OTHER_DTYPE PENSTOCK_DTYPE
#include "penstock/dtypes.def"
#undef PENSTOCK_OTHER_DTYPE
#undef PENSTOCK_DTYPE
};

enum class ReduceOp : std::uint8_t {
#define PENSTOCK_REDUCE_OP(name) name,
#include "penstock/reduce_ops.def"
#undef PENSTOCK_REDUCE_OP
};

/// Size of one element in bytes.
PENSTOCK_API std::size_t size_bytes(DType dtype) noexcept;
PENSTOCK_API std::string_view name(DType dtype) noexcept;
PENSTOCK_API std::string_view name(ReduceOp op) noexcept;
/// The type with this name ("float32"). Throws Error(invalid_argument) that lists the known names.
PENSTOCK_API DType dtype_from_name(std::string_view name);
PENSTOCK_API ReduceOp reduce_op_from_name(std::string_view name);
/// Whether the operation exists for the type, as in MPI: bitwise ones for integers, logical ones for integers and
/// bool8, min and max for all but complex numbers, minloc and maxloc for pairs.
PENSTOCK_API bool defined_for(ReduceOp op, DType dtype) noexcept;
PENSTOCK_API bool is_complex(DType dtype) noexcept;
/// Whether the type is neither a pair nor bool8.
PENSTOCK_API bool is_number(DType dtype) noexcept;

}  // namespace penstock
