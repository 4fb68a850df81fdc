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

enum class DType : std::uint8_t {
#define PENSTOCK_DTYPE(name, type, size, numpy) name,
#include "penstock/dtypes.def"
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
/// Bitwise operations exist for integers only, min and max for everything but complex numbers, as in MPI.
PENSTOCK_API bool defined_for(ReduceOp op, DType dtype) noexcept;

}  // namespace penstock
