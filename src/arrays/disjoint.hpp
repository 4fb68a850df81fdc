// Strided arrays in memory: whether they overlap, and which addresses they take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "penstock/types.hpp"

namespace penstock::arrays {

/// An array with any strides.
struct StridedRange {
  const std::byte* first = nullptr;  ///< element with all indices 0
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides_bytes;
  std::int64_t element_bytes = 1;
  const char* what = "";  ///< name for messages: "source", …
  bool is_written = false;

  const std::byte* begin() const;  ///< of the address range from its lowest to its highest byte
  const std::byte* end() const;
};

/// A contiguous range.
StridedRange dense_range(const std::byte* data, std::uint64_t size_bytes, const char* what, bool is_written);

/// Whether an element of one array overlaps an element of the other. Exact, unless it would take thousands of steps to
/// decide; then it returns true.
bool overlap(const StridedRange& a, const StridedRange& b);

/// Ranges in the order of their addresses, without those that have no elements. They must outlive it.
class OrderedRanges {
 public:
  explicit OrderedRanges(std::span<const StridedRange> ranges);
  void add(const StridedRange& range);

  /// Throws Error(invalid_argument) if a written range overlaps another one. The ranges are elements of one array.
  void check_disjoint() const;
  /// The address ranges. Those that are not further apart than `near_bytes` are one.
  std::vector<ConstBytes> joined(std::uint64_t near_bytes) const;

 private:
  struct Entry {
    const std::byte* begin;
    const std::byte* end;
    const StridedRange* range;
  };

  std::vector<Entry> entries_;
};

}  // namespace penstock::arrays
