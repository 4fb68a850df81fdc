#include "redistribute/boxes.hpp"

#include <algorithm>
#include <cstdlib>

namespace penstock::redistribute {

void BlockList::add(std::int64_t from_offset, std::int64_t to_offset, std::vector<BoxSide>& sides) {
  if (std::any_of(sides.begin(), sides.end(), [](const BoxSide& side) { return side.length == 0; })) return;
  std::erase_if(sides, [](const BoxSide& side) { return side.length == 1; });
  std::sort(sides.begin(), sides.end(),
            [](const BoxSide& a, const BoxSide& b) { return std::abs(a.to_stride) > std::abs(b.to_stride); });
  std::size_t kept = 0;
  for (const BoxSide& side : sides) {
    BoxSide* outer = kept > 0 ? &sides[kept - 1] : nullptr;
    if (outer != nullptr && outer->to_stride == side.length * side.to_stride &&
        outer->from_stride == side.length * side.from_stride) {
      *outer = {outer->length * side.length, side.from_stride, side.to_stride};
    } else {
      sides[kept++] = side;
    }
  }
  sides.resize(kept);

  // Columns run along the shortest stride in `from`, rows along the shortest remaining stride in `to`. So each block is
  // either a copy of rows or a transposition. The other dimensions are enumerated.
  BoxSide columns{1, 1, 1};
  BoxSide rows{1, 0, 0};
  if (!sides.empty()) {
    const auto fastest = std::min_element(sides.begin(), sides.end(), [](const BoxSide& a, const BoxSide& b) {
      return std::abs(a.from_stride) < std::abs(b.from_stride);
    });
    columns = *fastest;
    sides.erase(fastest);
  }
  if (!sides.empty()) {
    rows = sides.back();
    sides.pop_back();
  }
  Block block{.rows = static_cast<std::uint64_t>(rows.length),
              .columns = static_cast<std::uint64_t>(columns.length),
              .from_row_stride_elems = rows.from_stride,
              .from_column_stride_elems = columns.from_stride,
              .to_row_stride_elems = rows.to_stride,
              .to_column_stride_elems = columns.to_stride};
  index_.assign(sides.size(), 0);
  for (bool more = true; more;) {
    block.from_offset_elems = static_cast<std::uint64_t>(from_offset);
    block.to_offset_elems = static_cast<std::uint64_t>(to_offset);
    append(block);
    more = false;
    for (std::size_t d = sides.size(); d-- > 0 && !more;) {
      more = ++index_[d] < sides[d].length;
      from_offset += sides[d].from_stride;
      to_offset += sides[d].to_stride;
      if (more) continue;
      from_offset -= sides[d].length * sides[d].from_stride;
      to_offset -= sides[d].length * sides[d].to_stride;
      index_[d] = 0;
    }
  }
}

bool BlockList::is_contiguous() const {
  return blocks_.size() == 1 && blocks_[0].rows == 1 && blocks_[0].from_column_stride_elems == 1 &&
         blocks_[0].to_column_stride_elems == 1;
}

void BlockList::append(const Block& block) {
  if (!blocks_.empty()) {
    Block& last = blocks_.back();
    const auto from_step = static_cast<std::int64_t>(block.from_offset_elems - last.from_offset_elems);
    const auto to_step = static_cast<std::int64_t>(block.to_offset_elems - last.to_offset_elems);
    const bool same_columns = last.from_column_stride_elems == block.from_column_stride_elems &&
                              last.to_column_stride_elems == block.to_column_stride_elems;
    if (same_columns && last.rows == 1 && block.rows == 1 &&
        from_step == static_cast<std::int64_t>(last.columns) * block.from_column_stride_elems &&
        to_step == static_cast<std::int64_t>(last.columns) * block.to_column_stride_elems) {
      last.columns += block.columns;
      return;
    }
    if (same_columns && last.columns == block.columns && last.rows > 1 &&
        (block.rows == 1 || (last.from_row_stride_elems == block.from_row_stride_elems &&
                             last.to_row_stride_elems == block.to_row_stride_elems)) &&
        from_step == static_cast<std::int64_t>(last.rows) * last.from_row_stride_elems &&
        to_step == static_cast<std::int64_t>(last.rows) * last.to_row_stride_elems) {
      last.rows += block.rows;
      return;
    }
  }
  blocks_.push_back(block);
}

}  // namespace penstock::redistribute
