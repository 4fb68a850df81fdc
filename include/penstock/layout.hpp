// Which rank owns which part of a global n-d array, and where it lies in that rank's memory.
//
// A layout is a grid of tiles. Every dimension (an Axis) is cut into intervals, and each interval belongs to one
// coordinate of that axis; a tile is a tuple of coordinates, a rank owns whole tiles. ScaLAPACK's block-cyclic layout
// is the case of few coordinates with many intervals each, one tile per rank; an arbitrary grid (the paper's
// row-splits, column-splits and owners, COSTA Section 5) the case of one interval per coordinate. So a block-cyclic
// layout takes memory for its processes, never for its blocks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/export.hpp"

namespace penstock {

enum class Order : std::uint8_t { row_major, column_major };

/// How one dimension is cut and dealt. A value; lengths in elements.
/// Intervals are numbered along the dimension; interval i belongs to coordinate i % coordinates().
class PENSTOCK_API Axis {
 public:
  /// Intervals of `block` elements (the last one shorter) dealt in turn to `coordinates` coordinates. The first
  /// interval lacks its first `skipped` elements, fewer than a block: so a part of an axis is an axis.
  static Axis cyclic(std::int64_t length, std::int64_t block, std::int64_t coordinates, std::int64_t skipped = 0);
  /// Intervals between the borders, which begin with 0 and increase strictly; one coordinate for each interval.
  static Axis cut(std::vector<std::int64_t> borders);

  bool is_cyclic() const { return block_ > 0; }
  std::int64_t length() const { return length_; }
  std::int64_t coordinates() const { return coordinates_; }
  std::int64_t intervals() const;
  /// Begin of interval i; length() for i == intervals().
  std::int64_t start(std::int64_t interval) const;
  std::int64_t interval_of(std::int64_t position) const;
  /// Where the interval begins among the elements of its coordinate.
  std::int64_t local_start(std::int64_t interval) const {
    if (!is_cyclic() || interval < coordinates_) return 0;
    return interval / coordinates_ * block_ - (interval % coordinates_ == 0 ? skipped_ : 0);
  }
  /// Number of elements of a coordinate.
  std::int64_t local_length(std::int64_t coordinate) const { return local_length_before(coordinate, length_); }
  /// Number of elements of a coordinate below a position.
  std::int64_t local_length_before(std::int64_t coordinate, std::int64_t position) const;
  /// After so many elements the dealing repeats; length() where it does not.
  std::int64_t period() const;
  /// Cyclic axes only: elements of each interval but the first and the last.
  std::int64_t block() const { return block_; }
  /// Cyclic axes only: how many elements the first interval has less.
  std::int64_t skipped() const { return skipped_; }
  /// Cut axes only.
  const std::vector<std::int64_t>& borders() const { return borders_; }

  friend bool operator==(const Axis&, const Axis&) = default;

 private:
  Axis() = default;
  std::int64_t length_ = 0;
  std::int64_t block_ = 0;
  std::int64_t coordinates_ = 0;
  std::int64_t skipped_ = 0;
  std::vector<std::int64_t> borders_;
};

/// One interval product of a layout as its owner holds it. All lengths in elements; one entry per dimension.
struct LayoutBlock {
  std::vector<std::int64_t> global_start;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides_elems;  ///< in the owner's local memory
  std::int64_t local_offset_elems = 0;
};

/// One tile as its owner holds it: a dense local array.
struct LayoutTile {
  std::int64_t index = 0;                ///< among all tiles of the layout, last axis fastest
  std::vector<std::int64_t> coordinate;  ///< one per axis
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides_elems;
  std::int64_t local_offset_elems = 0;
};

/// ScaLAPACK's layout. Dimension d is cut into blocks of block[d], dealt cyclically to grid[d] processes.
struct BlockCyclic {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> block;
  std::vector<std::int64_t> grid;
  std::vector<std::int64_t> first_process = {};  ///< coordinates of the one with the first block; empty: all 0
  std::vector<std::int32_t> ranks = {};  ///< of the processes, in `grid_order`; empty: 0, 1, 2 and so on. No rank twice
  Order grid_order = Order::row_major;
  Order storage = Order::row_major;  ///< of the dense local array of each rank
};

/// How the tiles of one rank lie in memory that holds more than them: part of a larger array, or padded.
struct LocalMemory {
  struct Tile {
    std::int64_t offset_elems = 0;
    std::vector<std::int64_t> strides_elems;  ///< one per dimension

    friend bool operator==(const Tile&, const Tile&) = default;
  };
  std::vector<Tile> tiles;      ///< in the order of Layout::local_tiles()
  std::int64_t size_elems = 0;  ///< of the whole memory

  friend bool operator==(const LocalMemory&, const LocalMemory&) = default;
};

/// A rectangle of the array that a rank has as one dense array.
struct LayoutBox {
  std::int32_t owner = 0;
  std::vector<std::int64_t> begin;  ///< of its first element in the array, one entry per dimension
  std::vector<std::int64_t> shape;

  friend bool operator==(const LayoutBox&, const LayoutBox&) = default;
};

/// A value. Ranks own any number of tiles, zero included; ranks from ranks() on own nothing. Sizes are 64-bit: the
/// number of elements of the whole array must be below 2^63. All functions throw Error(invalid_argument) that names
/// the first offence. Thread-safe as long as nobody assigns to it.
class PENSTOCK_API Layout {
 public:
  static Layout block_cyclic(const BlockCyclic& what);
  /// The same with the first block on the first process, and the ranks numbered over the grid in `grid_order`.
  static Layout block_cyclic(std::vector<std::int64_t> shape, std::vector<std::int64_t> block,
                             std::vector<std::int64_t> grid, Order grid_order = Order::row_major,
                             Order storage = Order::row_major);

  /// Any grid. splits[d] are the borders of dimension d, from 0 to its length, strictly increasing; `owners` has one
  /// rank per block, last dimension fastest. A rank's blocks lie one after another in that order, each dense in
  /// `storage` order. `ranks` is the number of ranks, at least the largest owner + 1.
  static Layout grid(std::vector<std::vector<std::int64_t>> splits, std::vector<std::int32_t> owners,
                     std::int32_t ranks, Order storage = Order::row_major);

  /// Any boxes that make up the array, each element in exactly one of them; empty ones count for nothing. A rank's
  /// boxes lie one after another in the order given, each dense in `storage` order. Internally the array is cut at the
  /// borders of all boxes, so many boxes whose borders are all different are expensive.
  static Layout boxes(std::vector<std::int64_t> shape, std::vector<LayoutBox> boxes, std::int32_t ranks,
                      Order storage = Order::row_major);

  /// The same array several times: each of the layouts holds all of it, on ranks of its own. As a source each rank's
  /// own copy is read; as a target all copies are written. Functions of a rank speak of the copy that the rank has a
  /// part of; axes(), owners(), owner() and tile() of the first one. Rejects a rank with parts of two copies.
  static Layout replicated(std::vector<Layout> copies);

  /// The array cut along one dimension into `ranks` nearly equal pieces (the first ones longer by one).
  static Layout even(std::vector<std::int64_t> shape, std::int32_t ranks, std::size_t dimension = 0);

  /// The whole array on one rank.
  static Layout whole(std::vector<std::int64_t> shape, std::int32_t owner = 0, std::int32_t ranks = 1);

  /// The general form: any axes, one owner per tile, last axis fastest.
  static Layout from_axes(std::vector<Axis> axes, std::vector<std::int32_t> owners, std::int32_t ranks,
                          Order storage = Order::row_major);

  /// 1, but for replicated().
  std::int32_t copies() const { return copies_.empty() ? 1 : static_cast<std::int32_t>(copies_.size()); }
  const Layout& copy(std::int32_t index) const {
    return copies_.empty() ? *this : copies_[static_cast<std::size_t>(index)];
  }
  /// The copy that a rank has a part of, or -1.
  std::int32_t copy_of(std::int32_t rank) const;

  const std::vector<std::int64_t>& shape() const { return shape_; }
  std::size_t dimensions() const { return shape_.size(); }
  std::int64_t size_elems() const { return size_elems_; }
  std::int32_t ranks() const { return ranks_; }
  Order storage() const { return storage_; }
  const std::vector<Axis>& axes() const { return axes_; }
  /// One rank per tile, last axis fastest.
  const std::vector<std::int32_t>& owners() const { return owners_; }
  /// The borders of the intervals of one dimension: enumerates them, so not for block-cyclic layouts of great length.
  std::vector<std::int64_t> splits(std::size_t dimension) const;
  /// Owner of the block with these interval numbers, one per dimension.
  std::int32_t owner(std::span<const std::int64_t> block_index) const;

  std::int64_t local_size_elems(std::int32_t rank) const;
  /// Shape of the dense local array of a rank that owns one tile (zeros for one that owns none); {local_size_elems}
  /// for a rank that owns several, which lie one after another.
  std::vector<std::int64_t> local_shape(std::int32_t rank) const;
  std::vector<LayoutTile> local_tiles(std::int32_t rank) const;
  /// Every block of this rank, tile after tile, last dimension fastest. Enumerates them: see local_tiles().
  std::vector<LayoutBlock> local_blocks(std::int32_t rank) const;
  LayoutTile tile(std::int64_t index) const;

  /// Where this rank's tiles lie when its memory is dense but for the step from one column (of column-major storage)
  /// or row to the next, `leading_elems`; 0: dense. A leading dimension is for two dimensions and one tile.
  LocalMemory local_memory(std::int32_t rank, std::int64_t leading_elems = 0) const;

  /// What a rank has, as arrays: its boxes, of a layout of boxes() and in their order; its tiles otherwise. By shape.
  std::vector<std::vector<std::int64_t>> local_part_shapes(std::int32_t rank) const;
  /// Where this rank's tiles lie when each of those arrays lies anywhere: with its first element at an offset, and with
  /// any strides (also negative ones), which give no two elements the same place.
  LocalMemory placed_memory(std::int32_t rank, std::span<const LocalMemory::Tile> parts) const;
  /// Of a layout of boxes(): those, but for empty ones. Otherwise none.
  std::span<const LayoutBox> given_boxes() const { return boxes_; }

  /// The part of the array that begins at `begin` and has this shape, on the same ranks, each with a memory for this
  /// part alone.
  Layout window(std::span<const std::int64_t> begin, std::span<const std::int64_t> shape) const;
  /// Where the tiles of that window lie in `memory`, this rank's memory for the whole array.
  LocalMemory window_memory(std::span<const std::int64_t> begin, std::span<const std::int64_t> shape, std::int32_t rank,
                            const LocalMemory& memory) const;

  /// The same layout with rank r's tiles given to permutation[r]. The permutation may be longer than ranks(); the
  /// result then has as many ranks. Their local arrays are those of r, unchanged.
  Layout relabeled(std::span<const std::int32_t> permutation) const;

  /// The same layout among more ranks: what rank r has goes to ranks[r], of `total` ranks. So layouts of different
  /// groups of processes come together in a communicator that holds all of them.
  Layout on_ranks(std::span<const std::int32_t> ranks, std::int32_t total) const;

  /// A text from which parse() makes an equal layout; goes into checkpoints. One line of printable characters.
  std::string serialize() const;
  static Layout parse(std::string_view text);
  friend PENSTOCK_API bool operator==(const Layout& a, const Layout& b);

 private:
  Layout() = default;
  std::vector<std::int64_t> tile_coordinate(std::int64_t index) const;
  /// The coordinates of each axis that a window keeps, in its order.
  std::vector<std::vector<std::int64_t>> window_coordinates(std::span<const std::int64_t> begin,
                                                            std::span<const std::int64_t> shape) const;
  std::int64_t tile_index(std::span<const std::int64_t> coordinate) const;
  /// The same with rank r's part given to owners[r], of `ranks` ranks.
  Layout with_owners(std::span<const std::int32_t> owners, std::int32_t ranks) const;

  std::vector<std::int64_t> shape_;
  std::vector<Axis> axes_;
  std::vector<std::int32_t> owners_;
  std::int32_t ranks_ = 0;
  Order storage_ = Order::row_major;
  std::int64_t size_elems_ = 0;
  // Derived: the tiles of rank r are rank_tiles_[first_tile_[r] .. first_tile_[r + 1]), in ascending order.
  std::vector<std::int64_t> first_tile_;
  std::vector<std::int64_t> rank_tiles_;
  std::vector<std::int64_t> tile_offset_elems_;
  std::vector<std::int64_t> local_size_elems_;
  // Of boxes() only: what they were, and the strides of each tile.
  std::vector<LayoutBox> boxes_;
  std::vector<std::vector<std::int64_t>> tile_strides_elems_;
  // Of replicated() only; everything else is the first copy's.
  std::vector<Layout> copies_;
  std::vector<std::int32_t> copy_of_rank_;
};

}  // namespace penstock
