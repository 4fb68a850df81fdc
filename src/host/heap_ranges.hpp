// Which addresses of a heap are taken.
#pragma once

#include <cstdint>
#include <map>

namespace penstock::host {

/// Allocates ranges of offsets. Offsets and sizes are multiples of a page. One thread at a time.
class HeapRanges {
 public:
  explicit HeapRanges(std::uint64_t bytes);

  /// The lowest free range of that size. Throws Error(no_space).
  std::uint64_t take(std::uint64_t bytes);
  /// Frees a range that take() returned.
  void give_back(std::uint64_t offset, std::uint64_t bytes);
  std::uint64_t taken_bytes() const { return taken_bytes_; }

 private:
  std::map<std::uint64_t, std::uint64_t> free_;  ///< offset to size; adjacent ranges are merged
  std::uint64_t taken_bytes_ = 0;
};

}  // namespace penstock::host
