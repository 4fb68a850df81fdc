// Reproducible reductions: the result does not depend on the order of the contributions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/arithmetic.hpp"

namespace penstock::kernels {

/// Whether predefined operations on this type can give other bits in another order. False for integers, which wrap, and
/// for bool8.
bool depends_on_order(DType dtype);

/// to[i] = the combination of the i-th elements of all parts. They are sorted by value; then neighbours are combined
/// pairwise until one is left. Every part is as long as `to` and does not overlap it. Numbers of up to 8 bytes, and
/// complex numbers in sums, are sorted by magnitude, so that small ones are combined first; all other elements by their
/// bytes. A NaN in the result has a fixed bit pattern. Local, non-blocking, any thread.
void reduce_sorted(const Arithmetic& arithmetic, std::span<const ConstBytes> parts, Bytes to);

/// Cuts `all` into consecutive parts of one size.
inline std::vector<ConstBytes> parts_of(ConstBytes all, std::uint64_t part_bytes) {
  std::vector<ConstBytes> parts;
  for (std::uint64_t at = 0; part_bytes > 0 && at + part_bytes <= all.size(); at += part_bytes)
    parts.push_back(all.subspan(at, part_bytes));
  return parts;
}

}  // namespace penstock::kernels
