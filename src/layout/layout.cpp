#include "penstock/layout.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "layout/checked.hpp"
#include "layout/dense.hpp"
#include "penstock/error.hpp"

namespace penstock {
namespace {

using layout::reject;

void demand_same_dimensions(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& other,
                            const char* what) {
  if (shape.size() != other.size())
    reject(std::string("the shape has ") + std::to_string(shape.size()) + " dimensions, but " + what + " has " +
           std::to_string(other.size()));
}

/// The rank's box if it has exactly one, else nullptr.
const LayoutBox* the_box_of(const std::vector<LayoutBox>& boxes, std::int32_t rank) {
  const LayoutBox* found = nullptr;
  for (const LayoutBox& box : boxes)
    if (box.owner == rank) {
      if (found != nullptr) return nullptr;
      found = &box;
    }
  return found;
}

}  // namespace

Layout Layout::from_axes(std::vector<Axis> axes, std::vector<std::int32_t> owners, std::int32_t ranks, Order storage) {
  if (ranks < 1) reject("the number of ranks is " + std::to_string(ranks) + "; expected at least 1");
  Layout layout;
  std::vector<std::int64_t> tiles_per_axis;
  for (const Axis& axis : axes) {
    layout.shape_.push_back(axis.length());
    tiles_per_axis.push_back(axis.coordinates());
  }
  layout.size_elems_ = layout::checked_product(layout.shape_, "layout: the number of elements");
  const std::int64_t tiles = layout::checked_product(tiles_per_axis, "layout: the number of blocks");
  if (static_cast<std::int64_t>(owners.size()) != tiles)
    reject(std::to_string(owners.size()) + " owners given; expected one for each of " + std::to_string(tiles) +
           " blocks");
  for (std::size_t i = 0; i < owners.size(); ++i)
    if (owners[i] < 0 || owners[i] >= ranks)
      reject("owners[" + std::to_string(i) + "] is " + std::to_string(owners[i]) + "; expected a rank from 0 to " +
             std::to_string(ranks - 1));

  layout.ranks_ = ranks;
  layout.storage_ = storage;

  const auto tables = std::make_shared<Tables>();
  layout.tables_ = tables;
  tables->axes = std::move(axes);
  tables->owners = std::move(owners);
  tables->first_tile.assign(static_cast<std::size_t>(ranks) + 1, 0);
  for (const std::int32_t rank : tables->owners) ++tables->first_tile[static_cast<std::size_t>(rank) + 1];
  std::partial_sum(tables->first_tile.begin(), tables->first_tile.end(), tables->first_tile.begin());
  tables->rank_tiles.resize(tables->owners.size());
  tables->tile_offset_elems.resize(tables->owners.size());
  tables->local_size_elems.assign(static_cast<std::size_t>(ranks), 0);
  std::vector<std::int64_t> next(tables->first_tile.begin(), tables->first_tile.end() - 1);
  std::vector<std::int64_t> coordinate(tables->axes.size());  // of tile i
  for (std::int64_t i = 0; i < tiles; ++i) {
    const auto tile = static_cast<std::size_t>(i);
    const auto rank = static_cast<std::size_t>(tables->owners[tile]);
    tables->rank_tiles[static_cast<std::size_t>(next[rank]++)] = i;
    tables->tile_offset_elems[tile] = tables->local_size_elems[rank];
    std::int64_t size_elems = 1;
    for (std::size_t d = 0; d < coordinate.size(); ++d) size_elems *= tables->axes[d].local_length(coordinate[d]);
    tables->local_size_elems[rank] += size_elems;
    for (std::size_t d = coordinate.size(); d-- > 0 && ++coordinate[d] == tables->axes[d].coordinates();) {
      coordinate[d] = 0;
    }
  }
  return layout;
}

Layout Layout::block_cyclic(std::vector<std::int64_t> shape, std::vector<std::int64_t> block,
                            std::vector<std::int64_t> grid, Order grid_order, Order storage) {
  return block_cyclic({.shape = std::move(shape),
                       .block = std::move(block),
                       .grid = std::move(grid),
                       .grid_order = grid_order,
                       .storage = storage});
}

Layout Layout::block_cyclic(const BlockCyclic& what) {
  const std::size_t dimensions = what.shape.size();
  demand_same_dimensions(what.shape, what.block, "the block");
  demand_same_dimensions(what.shape, what.grid, "the process grid");
  std::vector<std::int64_t> first = what.first_process;
  if (first.empty()) first.resize(dimensions, 0);
  demand_same_dimensions(what.shape, first, "the first process");
  std::vector<Axis> axes;
  for (std::size_t d = 0; d < dimensions; ++d) {
    axes.push_back(Axis::cyclic(what.shape[d], what.block[d], what.grid[d]));
    if (first[d] < 0 || first[d] >= what.grid[d])
      reject("first_process[" + std::to_string(d) + "] is " + std::to_string(first[d]) + "; expected one from 0 to " +
             std::to_string(what.grid[d] - 1));
  }
  const std::int64_t processes = layout::checked_product(what.grid, "layout: the number of processes");
  if (processes > std::numeric_limits<std::int32_t>::max())
    reject("the process grid has " + std::to_string(processes) + " processes; expected fewer than 2^31");
  if (!what.ranks.empty() && static_cast<std::int64_t>(what.ranks.size()) != processes)
    reject(std::to_string(what.ranks.size()) + " ranks given for a process grid of " + std::to_string(processes));
  auto ranks = static_cast<std::int32_t>(processes);
  if (!what.ranks.empty()) {
    std::vector<std::int32_t> sorted = what.ranks;
    std::sort(sorted.begin(), sorted.end());
    if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
      reject("rank " + std::to_string(*twice) + " stands for two processes of the grid; expected each rank once");
    ranks = std::max(sorted.back(), 0) + (sorted.back() < std::numeric_limits<std::int32_t>::max() ? 1 : 0);
  }

  std::vector<std::int32_t> owners(static_cast<std::size_t>(processes));
  const std::vector<std::int64_t> strides = layout::dense_strides(what.grid, what.grid_order);
  std::vector<std::int64_t> coordinate(dimensions, 0);
  for (std::int32_t& rank : owners) {
    std::int64_t process = 0;
    for (std::size_t d = 0; d < dimensions; ++d) process += (coordinate[d] + first[d]) % what.grid[d] * strides[d];
    rank = what.ranks.empty() ? static_cast<std::int32_t>(process) : what.ranks[static_cast<std::size_t>(process)];
    for (std::size_t d = dimensions; d-- > 0;) {
      if (++coordinate[d] < what.grid[d]) break;
      coordinate[d] = 0;
    }
  }
  return from_axes(std::move(axes), std::move(owners), ranks, what.storage);
}

Layout Layout::grid(std::vector<std::vector<std::int64_t>> splits, std::vector<std::int32_t> owners, std::int32_t ranks,
                    Order storage) {
  std::vector<Axis> axes;
  for (std::vector<std::int64_t>& borders : splits) axes.push_back(Axis::cut(std::move(borders)));
  return from_axes(std::move(axes), std::move(owners), ranks, storage);
}

Layout Layout::even(std::vector<std::int64_t> shape, std::int32_t ranks, std::size_t dimension) {
  if (dimension >= shape.size())
    reject("dimension " + std::to_string(dimension) + " does not exist in a shape of " + std::to_string(shape.size()) +
           " dimensions");
  if (ranks < 1) reject("the number of ranks is " + std::to_string(ranks) + "; expected at least 1");
  std::vector<std::vector<std::int64_t>> splits;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] < 0) reject("a dimension's length is " + std::to_string(shape[d]) + "; expected at least 0");
    splits.push_back({0});
    if (d != dimension) {
      if (shape[d] > 0) splits[d].push_back(shape[d]);
      continue;
    }
    for (std::int32_t r = 0; r < ranks && splits[d].back() < shape[d]; ++r)
      splits[d].push_back(splits[d].back() + shape[d] / ranks + (r < shape[d] % ranks));
  }
  std::size_t blocks = 1;
  for (const std::vector<std::int64_t>& borders : splits) blocks *= borders.size() - 1;
  std::vector<std::int32_t> owners(blocks);
  std::iota(owners.begin(), owners.end(), 0);
  return grid(std::move(splits), std::move(owners), ranks);
}

Layout Layout::whole(std::vector<std::int64_t> shape, std::int32_t owner, std::int32_t ranks) {
  std::vector<std::vector<std::int64_t>> splits;
  bool empty = false;
  for (const std::int64_t length : shape) {
    if (length < 0) reject("a dimension's length is " + std::to_string(length) + "; expected at least 0");
    empty = empty || length == 0;
    splits.push_back(length > 0 ? std::vector<std::int64_t>{0, length} : std::vector<std::int64_t>{0});
  }
  return grid(std::move(splits), std::vector<std::int32_t>(empty ? 0 : 1, owner), ranks);
}

std::vector<std::int64_t> Layout::splits(std::size_t dimension) const {
  if (dimension >= tables_->axes.size())
    reject("dimension " + std::to_string(dimension) + " given for a grid of " + std::to_string(tables_->axes.size()) +
           " dimensions");
  const Axis& axis = tables_->axes[dimension];
  if (!axis.is_cyclic()) return axis.borders();
  std::vector<std::int64_t> borders;
  for (std::int64_t i = 0; i <= axis.intervals(); ++i) borders.push_back(axis.start(i));
  return borders;
}

std::int32_t Layout::owner(std::span<const std::int64_t> block_index) const {
  if (block_index.size() != tables_->axes.size())
    reject("a block has " + std::to_string(tables_->axes.size()) + " indices, " + std::to_string(block_index.size()) +
           " given");
  std::int64_t tile = 0;
  for (std::size_t d = 0; d < tables_->axes.size(); ++d) {
    if (block_index[d] < 0 || block_index[d] >= tables_->axes[d].intervals())
      reject("block index " + std::to_string(block_index[d]) + " in dimension " + std::to_string(d) + ", which has " +
             std::to_string(tables_->axes[d].intervals()) + " blocks");
    tile = tile * tables_->axes[d].coordinates() + block_index[d] % tables_->axes[d].coordinates();
  }
  return tables_->owners[static_cast<std::size_t>(tile)];
}

std::int64_t Layout::tile_index(std::span<const std::int64_t> coordinate) const {
  std::int64_t index = 0;
  for (std::size_t d = 0; d < tables_->axes.size(); ++d) index = index * tables_->axes[d].coordinates() + coordinate[d];
  return index;
}

std::vector<std::int64_t> Layout::tile_coordinate(std::int64_t index) const {
  std::vector<std::int64_t> coordinate(tables_->axes.size());
  for (std::size_t d = tables_->axes.size(); d-- > 0; index /= tables_->axes[d].coordinates())
    coordinate[d] = index % tables_->axes[d].coordinates();
  return coordinate;
}

LayoutTile Layout::tile(std::int64_t index) const {
  LayoutTile tile;
  tile.index = index;
  tile.coordinate = tile_coordinate(index);
  for (std::size_t d = 0; d < tables_->axes.size(); ++d)
    tile.shape.push_back(tables_->axes[d].local_length(tile.coordinate[d]));
  tile.strides_elems = tables_->tile_strides_elems.empty()
                           ? layout::dense_strides(tile.shape, storage_)
                           : tables_->tile_strides_elems[static_cast<std::size_t>(index)];
  tile.local_offset_elems = tables_->tile_offset_elems[static_cast<std::size_t>(index)];
  return tile;
}

std::int64_t Layout::local_size_elems(std::int32_t rank) const {
  if (rank < 0) reject("rank " + std::to_string(rank) + " given; expected at least 0");
  if (const std::int32_t mine = copy_of(rank); mine > 0) return copy(mine).local_size_elems(rank);
  const auto r = static_cast<std::size_t>(rank);
  return r < tables_->local_size_elems.size() ? tables_->local_size_elems[r] : 0;
}

std::vector<std::int64_t> Layout::local_shape(std::int32_t rank) const {
  if (const std::int32_t mine = copy_of(rank); mine > 0) return copy(mine).local_shape(rank);
  if (const auto box = the_box_of(tables_->boxes, rank)) return box->shape;
  const std::vector<LayoutTile> tiles = local_tiles(rank);
  if (tiles.empty()) return std::vector<std::int64_t>(dimensions(), 0);
  if (tiles.size() == 1) return tiles.front().shape;
  return {local_size_elems(rank)};
}

std::vector<LayoutTile> Layout::local_tiles(std::int32_t rank) const {
  if (rank < 0) reject("rank " + std::to_string(rank) + " given; expected at least 0");
  if (const std::int32_t mine = copy_of(rank); mine > 0) return copy(mine).local_tiles(rank);
  std::vector<LayoutTile> tiles;
  if (static_cast<std::size_t>(rank) + 1 >= tables_->first_tile.size()) return tiles;
  const auto r = static_cast<std::size_t>(rank);
  for (std::int64_t i = tables_->first_tile[r]; i < tables_->first_tile[r + 1]; ++i)
    tiles.push_back(tile(tables_->rank_tiles[static_cast<std::size_t>(i)]));
  return tiles;
}

std::vector<LayoutBlock> Layout::local_blocks(std::int32_t rank) const {
  if (const std::int32_t mine = copy_of(rank); mine > 0) return copy(mine).local_blocks(rank);
  std::vector<LayoutBlock> blocks;
  for (const LayoutTile& tile : local_tiles(rank)) {
    if (std::find(tile.shape.begin(), tile.shape.end(), 0) != tile.shape.end()) continue;
    std::vector<std::int64_t> interval = tile.coordinate;
    for (bool more = true; more;) {
      LayoutBlock block;
      block.strides_elems = tile.strides_elems;
      block.local_offset_elems = tile.local_offset_elems;
      for (std::size_t d = 0; d < tables_->axes.size(); ++d) {
        block.global_start.push_back(tables_->axes[d].start(interval[d]));
        block.shape.push_back(tables_->axes[d].start(interval[d] + 1) - tables_->axes[d].start(interval[d]));
        block.local_offset_elems += tables_->axes[d].local_start(interval[d]) * tile.strides_elems[d];
      }
      blocks.push_back(std::move(block));
      more = false;
      for (std::size_t d = tables_->axes.size(); d-- > 0 && !more;) {
        interval[d] += tables_->axes[d].coordinates();
        more = interval[d] < tables_->axes[d].intervals();
        if (!more) interval[d] = tile.coordinate[d];
      }
    }
  }
  return blocks;
}

Layout Layout::relabeled(std::span<const std::int32_t> permutation) const {
  const std::size_t count = permutation.size();
  if (count < static_cast<std::size_t>(ranks_))
    reject("a permutation of " + std::to_string(count) + " ranks given for a layout on " + std::to_string(ranks_));
  std::vector<bool> taken(count, false);
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t to = permutation[i];
    if (to < 0 || static_cast<std::size_t>(to) >= count || taken[static_cast<std::size_t>(to)])
      reject("permutation[" + std::to_string(i) + "] is " + std::to_string(to) + "; expected each rank from 0 to " +
             std::to_string(count - 1) + " once");
    taken[static_cast<std::size_t>(to)] = true;
  }
  return with_owners(permutation, static_cast<std::int32_t>(count));
}

Layout Layout::on_ranks(std::span<const std::int32_t> ranks, std::int32_t total) const {
  if (ranks.size() != static_cast<std::size_t>(ranks_))
    reject(std::to_string(ranks.size()) + " ranks given for a layout on " + std::to_string(ranks_));
  std::vector<bool> taken(static_cast<std::size_t>(std::max(total, 0)), false);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const bool inside = ranks[i] >= 0 && ranks[i] < total;
    if (!inside || taken[static_cast<std::size_t>(ranks[i])])
      reject("ranks[" + std::to_string(i) + "] is " + std::to_string(ranks[i]) +
             (inside ? ", which is there already" : "; expected one from 0 to " + std::to_string(total - 1)));
    taken[static_cast<std::size_t>(ranks[i])] = true;
  }
  return with_owners(ranks, total);
}

Layout Layout::with_owners(std::span<const std::int32_t> given, std::int32_t ranks) const {
  const auto moved = [&](std::int32_t rank) { return given[static_cast<std::size_t>(rank)]; };
  if (!copies_.empty()) {
    std::vector<Layout> copies;
    for (const Layout& copy : copies_) copies.push_back(copy.with_owners(given, ranks));
    return replicated(std::move(copies));
  }
  if (!tables_->boxes.empty()) {
    std::vector<LayoutBox> boxes = tables_->boxes;
    for (LayoutBox& box : boxes) box.owner = moved(box.owner);
    return Layout::boxes(shape_, std::move(boxes), ranks, storage_);
  }
  std::vector<std::int32_t> owners;
  owners.reserve(tables_->owners.size());
  for (const std::int32_t rank : tables_->owners) owners.push_back(moved(rank));
  return from_axes(tables_->axes, std::move(owners), ranks, storage_);
}

}  // namespace penstock
