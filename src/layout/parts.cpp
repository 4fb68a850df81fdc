// A rank's part of a layout as arrays with any placement.
#include <algorithm>
#include <string>

#include "layout/checked.hpp"
#include "penstock/error.hpp"
#include "penstock/layout.hpp"

namespace penstock {
namespace {

using layout::reject;

bool is_empty(const std::vector<std::int64_t>& shape) { return std::ranges::find(shape, 0) != shape.end(); }

std::int64_t product(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) reject("the strides of a local array reach 2^63 elements or more");
  return result;
}

std::int64_t sum(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) reject("the strides of a local array reach 2^63 elements or more");
  return result;
}

}  // namespace

bool operator==(const Layout& a, const Layout& b) {
  if (a.ranks_ != b.ranks_ || a.shape_ != b.shape_ || a.storage_ != b.storage_) return false;
  if (!a.copies_.empty() || !b.copies_.empty()) return a.copies_ == b.copies_;
  if (a.tables_ == b.tables_) return true;
  if (!a.tables_->boxes.empty() || !b.tables_->boxes.empty()) return a.tables_->boxes == b.tables_->boxes;
  return a.tables_->axes == b.tables_->axes && a.tables_->owners == b.tables_->owners;
}

std::vector<std::vector<std::int64_t>> Layout::local_part_shapes(std::int32_t rank) const {
  if (const std::int32_t mine = copy_of(rank); mine > 0) return copy(mine).local_part_shapes(rank);
  std::vector<std::vector<std::int64_t>> shapes;
  for (const LayoutBox& box : tables_->boxes)
    if (box.owner == rank) shapes.push_back(box.shape);
  if (!tables_->boxes.empty()) return shapes;
  for (LayoutTile& tile : local_tiles(rank)) shapes.push_back(std::move(tile.shape));
  return shapes;
}

LocalMemory Layout::placed_memory(std::int32_t rank, std::span<const LocalMemory::Tile> parts) const {
  if (const std::int32_t mine = copy_of(rank); mine > 0) return copy(mine).placed_memory(rank, parts);
  const std::vector<std::vector<std::int64_t>> shapes = local_part_shapes(rank);
  if (parts.size() != shapes.size())
    reject(std::to_string(parts.size()) + " local arrays given for rank " + std::to_string(rank) + ", which has " +
           std::to_string(shapes.size()));
  LocalMemory memory;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].strides_elems.size() != dimensions())
      reject(std::to_string(parts[i].strides_elems.size()) + " strides given for a local array of " +
             std::to_string(dimensions()) + " dimensions");
    if (is_empty(shapes[i])) continue;
    std::int64_t first = parts[i].offset_elems;
    std::int64_t last = first;
    for (std::size_t d = 0; d < dimensions(); ++d) {
      const std::int64_t stride = parts[i].strides_elems[d];
      if (stride == 0 && shapes[i][d] > 1)
        reject("the stride of a local array is 0 along dimension " + std::to_string(d) +
               ", where it has several elements; give each element a place of its own");
      std::int64_t& end = stride < 0 ? first : last;
      end = sum(end, product(stride, shapes[i][d] - 1));
    }
    if (first < 0) reject("a local array begins " + std::to_string(-first) + " elements before its memory");
    memory.size_elems = std::max(memory.size_elems, sum(last, 1));
  }

  const std::vector<LayoutTile> tiles = local_tiles(rank);
  if (tables_->boxes.empty()) {
    memory.tiles.assign(parts.begin(), parts.end());
    return memory;
  }
  for (const LayoutTile& tile : tiles) {
    std::vector<std::int64_t> begin(dimensions());
    for (std::size_t d = 0; d < dimensions(); ++d) begin[d] = tables_->axes[d].start(tile.coordinate[d]);
    std::size_t part = 0;
    for (const LayoutBox& box : tables_->boxes) {
      if (box.owner != rank) continue;
      const auto holds = [&](std::size_t d) {
        return begin[d] >= box.begin[d] && begin[d] - box.begin[d] < box.shape[d];
      };
      bool is_it = true;
      for (std::size_t d = 0; is_it && d < dimensions(); ++d) is_it = holds(d);
      if (!is_it) {
        ++part;
        continue;
      }
      LocalMemory::Tile place = parts[part];
      for (std::size_t d = 0; d < dimensions(); ++d)
        place.offset_elems += (begin[d] - box.begin[d]) * place.strides_elems[d];
      memory.tiles.push_back(std::move(place));
      break;
    }
  }
  return memory;
}

}  // namespace penstock
