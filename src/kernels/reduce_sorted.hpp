// Reductions whose bits do not depend on the order of what they combine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/arithmetic.hpp"

namespace penstock::kernels {

/// Whether predefined operations on elements of this type may give other bits in another order. Not so for integers,
/// which wrap, and truth values.
bool depends_on_order(DType dtype);

/// to[i] = the i-th elements of all parts, combined in an order that follows from their values alone: sorted, then
/// neighbours combined, then neighbours of these. Every part is as long as `to` and does not overlap it. Numbers of up
/// to 8 bytes, and sums of complex ones, are sorted by magnitude, so that small ones meet first; all other elements by
/// their bytes. NaN has one pattern in the result. Local and non-blocking; any thread.
void reduce_sorted(const Arithmetic& arithmetic, std::span<const ConstBytes> parts, Bytes to);

/// Neighbouring parts of one size.
inline std::vector<ConstBytes> parts_of(ConstBytes all, std::uint64_t part_bytes) {
  std::vector<ConstBytes> parts;
  for (std::uint64_t at = 0; part_bytes > 0 && at + part_bytes <= all.size(); at += part_bytes)
    parts.push_back(all.subspan(at, part_bytes));
  return parts;
}

}  // namespace penstock::kernels
