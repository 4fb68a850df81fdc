// Decomposes n-d boxes into the 2-d blocks of a transform step.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/plan.hpp"

namespace penstock::redistribute {

/// One dimension of a box: its length, and its stride on either side.
struct BoxSide {
  std::int64_t length = 0;
  std::int64_t from_stride = 0;
  std::int64_t to_stride = 0;
};

/// Collects boxes as few blocks as possible: merges dimensions that are contiguous on both sides, and blocks that
/// continue the previous one.
class BlockList {
 public:
  /// Offsets are in elements. The sides may have any order; their memory is used as scratch.
  void add(std::int64_t from_offset, std::int64_t to_offset, std::vector<BoxSide>& sides);

  const std::vector<Block>& blocks() const { return blocks_; }
  /// Whether all boxes form one contiguous range on both sides.
  bool is_contiguous() const;
  void clear() { blocks_.clear(); }

 private:
  void append(const Block& block);

  std::vector<Block> blocks_;
  std::vector<std::int64_t> index_;
};

}  // namespace penstock::redistribute
