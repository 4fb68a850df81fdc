// Elements of one type as elements of another.
#pragma once

#include <cstddef>

#include "penstock/types.hpp"

namespace penstock::kernels {

/// to[i] = from[i * step_bytes] for `count` elements, rounded to nearest even; neither needs to be aligned. Integers
/// wrap.
using Convert = void (*)(const std::byte* from, std::ptrdiff_t step_bytes, std::byte* to, std::size_t count);

/// Null where the conversion would lose more than precision: from complex to real, from floating point to integer.
Convert conversion(DType from, DType to) noexcept;

}  // namespace penstock::kernels
