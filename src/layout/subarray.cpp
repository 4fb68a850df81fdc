// Subarrays of a layout, and local arrays with a leading dimension.
#include <algorithm>
#include <string>

#include "layout/checked.hpp"
#include "penstock/error.hpp"
#include "penstock/layout.hpp"

namespace penstock {
namespace {

using layout::reject;

}  // namespace

LocalMemory Layout::local_memory(std::int32_t rank, std::int64_t leading_elems) const {
  if (const std::int32_t mine = copy_of(rank); mine > 0) return copy(mine).local_memory(rank, leading_elems);
  const std::vector<LayoutTile> tiles = local_tiles(rank);
  LocalMemory memory;
  memory.size_elems = local_size_elems(rank);
  for (const LayoutTile& tile : tiles) memory.tiles.push_back({tile.local_offset_elems, tile.strides_elems});
  if (leading_elems == 0 || tiles.empty()) return memory;
  const bool is_one_array = tiles.size() == 1 || local_shape(rank).size() == dimensions();
  if (dimensions() != 2 || !is_one_array)
    reject("a leading dimension is for two dimensions and one tile, this rank has " + std::to_string(tiles.size()) +
           " tiles of " + std::to_string(dimensions()) + " dimensions");
  const std::size_t fast = storage_ == Order::row_major ? 1 : 0;
  const std::vector<std::int64_t> shape = local_shape(rank);
  if (leading_elems < shape[fast])
    reject("the leading dimension is " + std::to_string(leading_elems) + "; expected at least " +
           std::to_string(shape[fast]) + ", the length of the local array of rank " + std::to_string(rank));
  for (LocalMemory::Tile& tile : memory.tiles) {
    tile.strides_elems[1 - fast] = leading_elems;
    if (shape[fast] > 0)
      tile.offset_elems = tile.offset_elems / shape[fast] * leading_elems + tile.offset_elems % shape[fast];
  }
  memory.size_elems = layout::checked_product(leading_elems, shape[1 - fast], "layout: the size of a local array");
  return memory;
}

std::vector<std::vector<std::int64_t>> Layout::subarray_coordinates(std::span<const std::int64_t> begin,
                                                                    std::span<const std::int64_t> shape) const {
  if (begin.size() != dimensions() || shape.size() != dimensions())
    reject("a subarray of " + std::to_string(begin.size()) + " and " + std::to_string(shape.size()) +
           " dimensions given for an array of " + std::to_string(dimensions()));
  std::vector<std::vector<std::int64_t>> kept(dimensions());
  for (std::size_t d = 0; d < dimensions(); ++d) {
    if (begin[d] < 0 || shape[d] < 0 || begin[d] > shape_[d] || shape[d] > shape_[d] - begin[d])
      reject("the subarray from " + std::to_string(begin[d]) + " of length " + std::to_string(shape[d]) +
             " does not lie in dimension " + std::to_string(d) + ", which has the length " + std::to_string(shape_[d]));
    const Axis& axis = tables_->axes[d];
    if (axis.is_cyclic()) {
      const std::int64_t first = axis.interval_of(begin[d]);
      for (std::int64_t c = 0; c < axis.coordinates(); ++c) kept[d].push_back((first + c) % axis.coordinates());
    } else if (shape[d] > 0) {
      for (std::int64_t c = axis.interval_of(begin[d]); c <= axis.interval_of(begin[d] + shape[d] - 1); ++c)
        kept[d].push_back(c);
    }
  }
  return kept;
}

Layout Layout::subarray(std::span<const std::int64_t> begin, std::span<const std::int64_t> shape) const {
  if (!copies_.empty()) {
    std::vector<Layout> subarrays;
    for (const Layout& copy : copies_) subarrays.push_back(copy.subarray(begin, shape));
    return replicated(std::move(subarrays));
  }
  const std::vector<std::vector<std::int64_t>> kept = subarray_coordinates(begin, shape);
  std::vector<Axis> axes;
  std::size_t tiles = 1;
  for (std::size_t d = 0; d < dimensions(); ++d) {
    const Axis& axis = tables_->axes[d];
    tiles *= kept[d].size();
    if (axis.is_cyclic()) {
      const std::int64_t skipped = (begin[d] + axis.skipped()) % axis.block();
      axes.push_back(Axis::cyclic(shape[d], axis.block(), axis.coordinates(), skipped));
      continue;
    }
    std::vector<std::int64_t> borders{0};
    for (const std::int64_t c : kept[d]) borders.push_back(std::min(axis.start(c + 1) - begin[d], shape[d]));
    axes.push_back(Axis::cut(std::move(borders)));
  }
  std::vector<std::int32_t> owners(tiles);
  std::vector<std::int64_t> coordinate(dimensions());
  for (std::size_t tile = 0; tile < tiles; ++tile) {
    std::size_t rest = tile;
    for (std::size_t d = dimensions(); d-- > 0; rest /= kept[d].size()) coordinate[d] = kept[d][rest % kept[d].size()];
    owners[tile] = tables_->owners[static_cast<std::size_t>(tile_index(coordinate))];
  }
  return from_axes(std::move(axes), std::move(owners), ranks_, storage_);
}

LocalMemory Layout::subarray_memory(std::span<const std::int64_t> begin, std::span<const std::int64_t> shape,
                                    std::int32_t rank, const LocalMemory& memory) const {
  if (const std::int32_t mine = copy_of(rank); mine > 0) return copy(mine).subarray_memory(begin, shape, rank, memory);
  const std::vector<std::vector<std::int64_t>> kept = subarray_coordinates(begin, shape);
  const std::vector<LayoutTile> all = local_tiles(rank);
  LocalMemory result;
  result.size_elems = memory.size_elems;
  for (const LayoutTile& tile : subarray(begin, shape).local_tiles(rank)) {
    std::vector<std::int64_t> coordinate(dimensions());
    for (std::size_t d = 0; d < dimensions(); ++d)
      coordinate[d] = kept[d][static_cast<std::size_t>(tile.coordinate[d])];
    const std::int64_t index = tile_index(coordinate);
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const LayoutTile& each) { return each.index == index; });
    LocalMemory::Tile place = memory.tiles.at(static_cast<std::size_t>(found - all.begin()));
    for (std::size_t d = 0; d < dimensions(); ++d)
      place.offset_elems += tables_->axes[d].local_length_before(coordinate[d], begin[d]) * place.strides_elems[d];
    result.tiles.push_back(std::move(place));
  }
  return result;
}

}  // namespace penstock
