// Conversion of elements from one type to another.
#pragma once

#include <cstddef>

#include "penstock/types.hpp"

namespace penstock::kernels {

/// Converts `count` elements that are `step_bytes` apart in `from` to contiguous ones in `to`. Rounds to nearest even;
/// integers wrap. Needs no alignment.
using Convert = void (*)(const std::byte* from, std::ptrdiff_t step_bytes, std::byte* to, std::size_t count);

/// nullptr for conversions that lose more than precision: complex to real, floating point to integer.
Convert conversion(DType from, DType to) noexcept;

}  // namespace penstock::kernels
