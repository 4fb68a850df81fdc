// n-d boxes as the 2-d blocks of a transform step.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/plan.hpp"

namespace penstock::redistribute {

/// One dimension of a box: how many elements, and how far apart they lie on either side.
struct BoxSide {
  std::int64_t length = 0;
  std::int64_t from_stride = 0;
  std::int64_t to_stride = 0;
};

/// Collects boxes as few blocks as possible: dimensions that lie densely behind one another on both sides become one,
/// and so do blocks that continue the one before.
class BlockList {
 public:
  /// Offsets in elements. The sides are in no particular order; their memory is used as scratch.
  void add(std::int64_t from_offset, std::int64_t to_offset, std::vector<BoxSide>& sides);

  const std::vector<Block>& blocks() const { return blocks_; }
  /// Whether everything added is one contiguous range on both sides.
  bool is_contiguous() const;
  void clear() { blocks_.clear(); }

 private:
  void append(const Block& block);

  std::vector<Block> blocks_;
  std::vector<std::int64_t> index_;
};

}  // namespace penstock::redistribute
