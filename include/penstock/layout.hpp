// Layouts: which rank owns which elements of a global n-d array, and where they lie in that rank's memory.
//
// Terms. Each dimension (an Axis) is cut into intervals. Each interval belongs to one coordinate of that axis. A block
// is a product of intervals. A tile is a product of coordinates: all blocks with these coordinates. Each tile has one
// owner, which stores it as one dense array. A rank owns any number of tiles.
//
// ScaLAPACK's block-cyclic layout has few coordinates with many intervals each, and one tile per rank. An arbitrary
// grid (row splits, column splits and owners: COSTA, Section 5) has one interval per coordinate, so each block is a
// tile. Memory is proportional to the number of tiles: a block-cyclic layout needs none for its blocks.
//
// All functions are local. Lengths, offsets and strides are in elements.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/export.hpp"

namespace penstock {

enum class Order : std::uint8_t { row_major, column_major };

/// One dimension: its intervals, and their coordinates. A value.
/// Interval i belongs to coordinate i % coordinates().
class PENSTOCK_API Axis {
 public:
  /// Intervals of `block` elements (the last may be shorter), dealt cyclically to `coordinates` coordinates. The first
  /// interval lacks its first `skipped` elements (fewer than `block`), so that a section of an axis is an axis too.
  static Axis cyclic(std::int64_t length, std::int64_t block, std::int64_t coordinates, std::int64_t skipped = 0);
  /// One interval and one coordinate between each two borders. Borders start with 0 and increase strictly.
  static Axis cut(std::vector<std::int64_t> borders);

  bool is_cyclic() const { return block_ > 0; }
  std::int64_t length() const { return length_; }
  std::int64_t coordinates() const { return coordinates_; }
  std::int64_t intervals() const;
  /// First position of interval i; length() for i == intervals().
  std::int64_t start(std::int64_t interval) const;
  std::int64_t interval_of(std::int64_t position) const;
  /// Offset of the interval among the elements of its coordinate.
  std::int64_t local_start(std::int64_t interval) const {
    if (!is_cyclic() || interval < coordinates_) return 0;
    return interval / coordinates_ * block_ - (interval % coordinates_ == 0 ? skipped_ : 0);
  }
  /// Number of elements of a coordinate.
  std::int64_t local_length(std::int64_t coordinate) const { return local_length_before(coordinate, length_); }
  /// Number of elements of a coordinate at positions below `position`.
  std::int64_t local_length_before(std::int64_t coordinate, std::int64_t position) const;
  /// Number of elements after which the assignment of coordinates repeats; length() if it does not.
  std::int64_t period() const;
  /// Cyclic axes only: length of all intervals but the first and the last.
  std::int64_t block() const { return block_; }
  /// Cyclic axes only: by how many elements the first interval is shorter.
  std::int64_t skipped() const { return skipped_; }
  /// Axes made by cut() only.
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

/// One block, as its owner stores it. One entry per dimension.
struct LayoutBlock {
  std::vector<std::int64_t> global_start;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides_elems;  ///< in the owner's memory
  std::int64_t local_offset_elems = 0;
};

/// One tile, as its owner stores it: a dense array.
struct LayoutTile {
  std::int64_t index = 0;                ///< among all tiles of the layout, last axis fastest
  std::vector<std::int64_t> coordinate;  ///< one per axis
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides_elems;
  std::int64_t local_offset_elems = 0;
};

/// ScaLAPACK's layout: blocks of block[d] elements along dimension d, dealt cyclically to grid[d] processes.
struct BlockCyclic {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> block;
  std::vector<std::int64_t> grid;
  std::vector<std::int64_t> first_process = {};  ///< grid coordinates of the owner of the first block; empty: all 0
  std::vector<std::int32_t> ranks = {};  ///< rank of each process, in `grid_order`, all different; empty: 0, 1, 2, …
  Order grid_order = Order::row_major;
  Order storage = Order::row_major;  ///< element order of the local arrays
};

/// The placement of one rank's tiles in memory that is not dense: part of a larger array, or padded.
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

/// A rectangle of the array that its owner stores as one dense array.
struct LayoutBox {
  std::int32_t owner = 0;
  std::vector<std::int64_t> begin;  ///< position in the array, one entry per dimension
  std::vector<std::int64_t> shape;

  friend bool operator==(const LayoutBox&, const LayoutBox&) = default;
};

/// The distribution of an n-d array over ranks. A value. Ranks own any number of tiles, or none; ranks from ranks() on
/// own none. The array must have fewer than 2^63 elements. Invalid arguments throw Error(invalid_argument), which names
/// the first of them. Thread-safe while nobody assigns to it.
class PENSTOCK_API Layout {
 public:
  static Layout block_cyclic(const BlockCyclic& what);
  /// The same with the first block on process 0, and ranks numbered over the grid in `grid_order`.
  static Layout block_cyclic(std::vector<std::int64_t> shape, std::vector<std::int64_t> block,
                             std::vector<std::int64_t> grid, Order grid_order = Order::row_major,
                             Order storage = Order::row_major);

  /// A general grid. splits[d] holds the borders of dimension d, strictly increasing from 0 to its length. `owners` has
  /// one rank per block, last dimension fastest. A rank's blocks follow one another in that order, each dense in
  /// `storage` order. `ranks` is the number of ranks, at least the largest owner + 1.
  static Layout grid(std::vector<std::vector<std::int64_t>> splits, std::vector<std::int32_t> owners,
                     std::int32_t ranks, Order storage = Order::row_major);

  /// Boxes that tile the array: each element lies in exactly one box. Empty boxes are ignored. A rank's boxes follow
  /// one another in the given order, each dense in `storage` order. The array is cut at the borders of all boxes, so
  /// many boxes with different borders are expensive.
  static Layout boxes(std::vector<std::int64_t> shape, std::vector<LayoutBox> boxes, std::int32_t ranks,
                      Order storage = Order::row_major);

  /// Several copies of one array. Each layout holds the whole array, on ranks of its own. As a source: a rank reads the
  /// copy that it owns a part of. As a target: all copies are written. Functions with a rank refer to that rank's copy;
  /// axes(), owners(), owner() and tile() to the first copy. Rejects a rank that owns parts of two copies.
  static Layout replicated(std::vector<Layout> copies);

  /// The array cut along one dimension into `ranks` nearly equal pieces. The first pieces may be one longer.
  static Layout even(std::vector<std::int64_t> shape, std::int32_t ranks, std::size_t dimension = 0);

  /// The whole array on one rank.
  static Layout whole(std::vector<std::int64_t> shape, std::int32_t owner = 0, std::int32_t ranks = 1);

  /// The general form: any axes, one owner per tile, last axis fastest.
  static Layout from_axes(std::vector<Axis> axes, std::vector<std::int32_t> owners, std::int32_t ranks,
                          Order storage = Order::row_major);

  /// 1, except for replicated().
  std::int32_t copies() const { return copies_.empty() ? 1 : static_cast<std::int32_t>(copies_.size()); }
  const Layout& copy(std::int32_t index) const {
    return copies_.empty() ? *this : copies_[static_cast<std::size_t>(index)];
  }
  /// The copy that a rank owns a part of, or -1.
  std::int32_t copy_of(std::int32_t rank) const;

  const std::vector<std::int64_t>& shape() const { return shape_; }
  std::size_t dimensions() const { return shape_.size(); }
  std::int64_t size_elems() const { return size_elems_; }
  std::int32_t ranks() const { return ranks_; }
  Order storage() const { return storage_; }
  const std::vector<Axis>& axes() const { return tables_->axes; }
  /// One rank per tile, last axis fastest.
  const std::vector<std::int32_t>& owners() const { return tables_->owners; }
  /// The borders of the intervals of one dimension. Enumerates them: expensive for long block-cyclic dimensions.
  std::vector<std::int64_t> splits(std::size_t dimension) const;
  /// Owner of a block, given its interval number along each dimension.
  std::int32_t owner(std::span<const std::int64_t> block_index) const;

  std::int64_t local_size_elems(std::int32_t rank) const;
  /// Shape of a rank's local array: n-d if it owns one tile, zeros if it owns none, {local_size_elems} if it owns
  /// several, which follow one another.
  std::vector<std::int64_t> local_shape(std::int32_t rank) const;
  std::vector<LayoutTile> local_tiles(std::int32_t rank) const;
  /// All blocks of a rank, tile by tile, last dimension fastest. Enumerates them; local_tiles() does not.
  std::vector<LayoutBlock> local_blocks(std::int32_t rank) const;
  LayoutTile tile(std::int64_t index) const;

  /// Placement of a rank's tile in a local array with a leading dimension: the distance, in elements, from one column
  /// to the next (column-major storage) or from one row to the next. 0: dense. Needs two dimensions and one tile.
  LocalMemory local_memory(std::int32_t rank, std::int64_t leading_elems = 0) const;

  /// Shapes of a rank's local arrays: of its boxes, if the layout was made by boxes(), in their order; else of its
  /// tiles.
  std::vector<std::vector<std::int64_t>> local_part_shapes(std::int32_t rank) const;
  /// Placement of a rank's tiles if each of its local arrays has any offset and any strides, also negative ones.
  /// Strides must not map two elements to one place.
  LocalMemory placed_memory(std::int32_t rank, std::span<const LocalMemory::Tile> parts) const;
  /// The boxes given to boxes(), without empty ones. Empty for other layouts.
  std::span<const LayoutBox> given_boxes() const { return tables_->boxes; }

  /// The subarray of this shape at `begin`, on the same ranks. Each rank's local array then holds its part of the
  /// subarray only.
  Layout subarray(std::span<const std::int64_t> begin, std::span<const std::int64_t> shape) const;
  /// Placement of the subarray's tiles in `memory`, this rank's memory for the whole array.
  LocalMemory subarray_memory(std::span<const std::int64_t> begin, std::span<const std::int64_t> shape,
                              std::int32_t rank, const LocalMemory& memory) const;

  /// The same layout with rank r's tiles owned by permutation[r]; local arrays do not change. The permutation may be
  /// longer than ranks(); the result has as many ranks as it.
  Layout relabeled(std::span<const std::int32_t> permutation) const;

  /// The same layout on other ranks: rank r's part goes to ranks[r] of `total` ranks. It brings layouts of different
  /// process groups into one communicator that contains them all.
  Layout on_ranks(std::span<const std::int32_t> ranks, std::int32_t total) const;

  /// One line of printable text, from which parse() makes an equal layout. Part of the checkpoint format.
  std::string serialize() const;
  static Layout parse(std::string_view text);
  friend PENSTOCK_API bool operator==(const Layout& a, const Layout& b);

 private:
  Layout() = default;
  std::vector<std::int64_t> tile_coordinate(std::int64_t index) const;
  /// For each axis, the coordinates that a subarray keeps, in its order.
  std::vector<std::vector<std::int64_t>> subarray_coordinates(std::span<const std::int64_t> begin,
                                                              std::span<const std::int64_t> shape) const;
  std::int64_t tile_index(std::span<const std::int64_t> coordinate) const;
  /// The same layout with rank r's part owned by owners[r], of `ranks` ranks.
  Layout with_owners(std::span<const std::int32_t> owners, std::int32_t ranks) const;

  /// What copies of a layout share, since it is large on many ranks. Never changes once a layout is made.
  struct Tables {
    std::vector<Axis> axes;
    std::vector<std::int32_t> owners;
    // Derived: the tiles of rank r are rank_tiles[first_tile[r] .. first_tile[r + 1]), ascending.
    std::vector<std::int64_t> first_tile;
    std::vector<std::int64_t> rank_tiles;
    std::vector<std::int64_t> tile_offset_elems;
    std::vector<std::int64_t> local_size_elems;
    // Only if made by boxes(): the boxes, and the strides of each tile.
    std::vector<LayoutBox> boxes;
    std::vector<std::vector<std::int64_t>> tile_strides_elems;
  };

  std::vector<std::int64_t> shape_;
  std::int32_t ranks_ = 0;
  Order storage_ = Order::row_major;
  std::int64_t size_elems_ = 0;
  std::shared_ptr<const Tables> tables_;
  // Only if made by replicated(); all other members are those of the first copy.
  std::vector<Layout> copies_;
  std::vector<std::int32_t> copy_of_rank_;
};

}  // namespace penstock
