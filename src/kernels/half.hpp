// Conversions between float and the 16-bit floating types, without branches so that loops over them vectorize.
#pragma once

#include <bit>
#include <cstdint>

#include "penstock/types.hpp"

namespace penstock::kernels {

/// Selects `yes` or `no` by a mask. For a conditional expression the compiler makes a branch around the floating-point
/// operations of one side, since they could trap.
inline std::uint32_t select(bool condition, std::uint32_t yes, std::uint32_t no) {
  const std::uint32_t mask = 0u - static_cast<std::uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

inline float to_float(BFloat16 value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16); }

/// Round to nearest even; NaN stays NaN (quiet).
inline BFloat16 to_bfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return {static_cast<std::uint16_t>((is_nan ? bits | 0x00400000u : rounded) >> 16)};
}

inline float to_float(Float16 value) {
  const std::uint32_t magnitude = (value.bits & 0x7fffu) << 13;
  const std::uint32_t sign = (value.bits & 0x8000u) << 16;
  // Multiplying by 2^112 moves the exponent's bias from 15 to 127 and makes subnormals normal at once.
  const std::uint32_t finite = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  const std::uint32_t special = magnitude | 0x7f800000u;  // infinity and NaN
  return std::bit_cast<float>(sign | select(magnitude >= 0x0f800000u, special, finite));
}

/// Round to nearest even; overflow becomes infinity, NaN stays NaN (quiet, with the upper bits of its payload), as by
/// the instructions of processors.
inline Float16 to_float16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  // Below the smallest normal number 2^-14: adding 0.5 lets the FPU round to a multiple of 2^-24 in the low bits.
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const std::uint32_t normal = (magnitude - 0x38000000u + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
  std::uint32_t result = select(magnitude < 0x38800000u, subnormal, normal);
  result = select(magnitude >= 0x47800000u, 0x7c00u, result);
  result = select(magnitude > 0x7f800000u, 0x7e00u | ((magnitude >> 13) & 0x01ffu), result);
  return {static_cast<std::uint16_t>(sign | result)};
}

}  // namespace penstock::kernels
