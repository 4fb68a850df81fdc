// Layouts composed of boxes, or of copies.
#include <algorithm>
#include <string>
#include <utility>

#include "layout/checked.hpp"
#include "layout/dense.hpp"
#include "penstock/error.hpp"
#include "penstock/layout.hpp"

namespace penstock {
namespace {

using layout::reject;

/// The borders of all boxes along each dimension.
std::vector<std::vector<std::int64_t>> borders_of(const std::vector<std::int64_t>& shape,
                                                  const std::vector<LayoutBox>& boxes) {
  std::vector<std::vector<std::int64_t>> borders;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    std::vector<std::int64_t>& along = borders.emplace_back(std::vector<std::int64_t>{0});
    if (shape[d] > 0) along.push_back(shape[d]);
    for (const LayoutBox& box : boxes) along.insert(along.end(), {box.begin[d], box.begin[d] + box.shape[d]});
    std::sort(along.begin(), along.end());
    along.erase(std::unique(along.begin(), along.end()), along.end());
  }
  return borders;
}

std::int64_t tile_at(const std::vector<std::int64_t>& borders, std::int64_t position) {
  return std::lower_bound(borders.begin(), borders.end(), position) - borders.begin();
}

}  // namespace

Layout Layout::boxes(std::vector<std::int64_t> shape, std::vector<LayoutBox> boxes, std::int32_t ranks, Order storage) {
  if (shape.empty()) reject("boxes of an array without dimensions given; expected at least one");
  std::int64_t size_elems = 0;
  std::vector<LayoutBox> filled;
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    LayoutBox& box = boxes[i];
    const std::string name = "boxes[" + std::to_string(i) + "]";
    if (box.begin.size() != shape.size() || box.shape.size() != shape.size())
      reject(name + " has " + std::to_string(box.begin.size()) + " and " + std::to_string(box.shape.size()) +
             " dimensions; expected " + std::to_string(shape.size()) + ", as the array has");
    if (box.owner < 0 || box.owner >= ranks)
      reject("the owner of " + name + " is " + std::to_string(box.owner) + "; expected a rank from 0 to " +
             std::to_string(ranks - 1));
    for (std::size_t d = 0; d < shape.size(); ++d)
      if (box.begin[d] < 0 || box.shape[d] < 0 || box.begin[d] > shape[d] || box.shape[d] > shape[d] - box.begin[d])
        reject(name + " goes from " + std::to_string(box.begin[d]) + " over " + std::to_string(box.shape[d]) +
               " elements in dimension " + std::to_string(d) + ", which has the length " + std::to_string(shape[d]));
    const std::int64_t elems = layout::checked_product(box.shape, "layout: the number of elements");
    if (elems == 0) continue;
    size_elems += elems;
    filled.push_back(std::move(box));
  }

  const std::vector<std::vector<std::int64_t>> borders = borders_of(shape, filled);
  std::vector<Axis> axes;
  std::vector<std::int64_t> counts;
  for (const std::vector<std::int64_t>& along : borders) {
    axes.push_back(Axis::cut(along));
    counts.push_back(axes.back().coordinates());
  }
  constexpr std::int64_t kMostTiles = std::int64_t{1} << 26;
  const std::int64_t tiles = layout::checked_product(counts, "layout: the number of blocks");
  if (tiles > kMostTiles)
    reject("the borders of the boxes cut the array into " + std::to_string(tiles) + " pieces, more than " +
           std::to_string(kMostTiles) + "; use fewer boxes, or boxes with common borders");
  std::vector<std::int32_t> owners(static_cast<std::size_t>(tiles), -1);
  std::vector<std::int64_t> offsets(owners.size());
  std::vector<std::vector<std::int64_t>> strides(owners.size());
  std::vector<std::int64_t> used_elems(static_cast<std::size_t>(std::max(ranks, 0)), 0);
  const std::vector<std::int64_t> steps = layout::dense_strides(counts, Order::row_major);
  for (std::size_t i = 0; i < filled.size(); ++i) {
    const LayoutBox& box = filled[i];
    const std::vector<std::int64_t> box_strides = layout::dense_strides(box.shape, storage);
    std::int64_t& begin_elems = used_elems[static_cast<std::size_t>(box.owner)];
    const auto place = [&](auto&& self, std::size_t d, std::int64_t tile, std::int64_t offset) -> void {
      if (d == shape.size()) {
        const auto at = static_cast<std::size_t>(tile);
        if (owners[at] >= 0)
          reject("a box of rank " + std::to_string(box.owner) + " overlaps with another, of rank " +
                 std::to_string(owners[at]));
        owners[at] = box.owner;
        offsets[at] = offset;
        strides[at] = box_strides;
        return;
      }
      const std::int64_t end = box.begin[d] + box.shape[d];
      for (std::int64_t c = tile_at(borders[d], box.begin[d]); borders[d][static_cast<std::size_t>(c)] < end; ++c)
        self(self, d + 1, tile + c * steps[d],
             offset + (borders[d][static_cast<std::size_t>(c)] - box.begin[d]) * box_strides[d]);
    };
    place(place, 0, 0, begin_elems);
    begin_elems += layout::checked_product(box.shape, "layout: the number of elements");
  }
  if (size_elems != layout::checked_product(shape, "layout: the number of elements"))
    reject("the boxes hold " + std::to_string(size_elems) + " elements of the array's " +
           std::to_string(layout::checked_product(shape, "layout: the number of elements")) +
           "; each element must lie in exactly one box");

  Layout layout = from_axes(std::move(axes), std::move(owners), ranks, storage);
  const auto tables = std::make_shared<Tables>(*layout.tables_);
  tables->tile_offset_elems = std::move(offsets);
  tables->tile_strides_elems = std::move(strides);
  tables->boxes = std::move(filled);
  layout.tables_ = tables;
  return layout;
}

Layout Layout::replicated(std::vector<Layout> copies) {
  if (copies.empty()) reject("no copies given; expected at least one layout");
  if (copies.size() == 1) return std::move(copies[0]);
  std::int32_t ranks = 0;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    const std::string name = "copies[" + std::to_string(i) + "]";
    if (!copies[i].copies_.empty()) reject(name + " is replicated itself; give its copies one by one");
    if (copies[i].shape_ != copies[0].shape_) reject(name + " is of an array of another shape than copies[0]");
    if (copies[i].storage_ != copies[0].storage_) reject(name + " has another storage order than copies[0]");
    ranks = std::max(ranks, copies[i].ranks_);
  }
  Layout layout = copies[0];
  layout.ranks_ = ranks;
  layout.copy_of_rank_.assign(static_cast<std::size_t>(ranks), -1);
  for (std::size_t i = 0; i < copies.size(); ++i)
    for (std::int32_t rank = 0; rank < copies[i].ranks_; ++rank) {
      if (copies[i].local_size_elems(rank) == 0) continue;
      std::int32_t& known = layout.copy_of_rank_[static_cast<std::size_t>(rank)];
      if (known >= 0)
        reject("rank " + std::to_string(rank) + " has parts of copies[" + std::to_string(known) + "] and of copies[" +
               std::to_string(i) + "]; expected each rank in one copy");
      known = static_cast<std::int32_t>(i);
    }
  layout.copies_ = std::move(copies);
  return layout;
}

std::int32_t Layout::copy_of(std::int32_t rank) const {
  if (copies_.empty())
    return tables_->local_size_elems.size() > static_cast<std::size_t>(std::max(rank, 0)) && rank >= 0 &&
                   tables_->local_size_elems[static_cast<std::size_t>(rank)] > 0
               ? 0
               : -1;
  return rank >= 0 && rank < ranks_ ? copy_of_rank_[static_cast<std::size_t>(rank)] : -1;
}

}  // namespace penstock
