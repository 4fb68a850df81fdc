// Whether arrays with strides share memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "penstock/types.hpp"

namespace penstock::arrays {

/// An array anywhere.
struct StridedRange {
  const std::byte* first = nullptr;  ///< element with all indices 0
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides_bytes;
  std::int64_t element_bytes = 1;
  const char* what = "";  ///< for the message: "source", …
  bool is_written = false;

  const std::byte* begin() const;  ///< of the memory between its first and its last byte
  const std::byte* end() const;
};

/// That of a contiguous range.
StridedRange dense_range(const std::byte* data, std::uint64_t size_bytes, const char* what, bool is_written);

/// Whether an element of one lies on an element of the other. Exact but for arrays so intricate that it would take
/// thousands of steps to tell; those count as overlapping.
bool overlap(const StridedRange& a, const StridedRange& b);

/// Throws Error(invalid_argument) where one that is written overlaps with another.
void check_apart(std::vector<StridedRange> ranges);

}  // namespace penstock::arrays
