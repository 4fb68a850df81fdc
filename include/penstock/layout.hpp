// Which rank owns which part of a global n-d array, and where it lies in that rank's memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "penstock/export.hpp"

namespace penstock {

enum class Order : std::uint8_t { row_major, column_major };

/// One block of a layout as its owner holds it. All lengths in elements; one entry per dimension.
struct LayoutBlock {
  std::vector<std::int64_t> global_start;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides_elems;  ///< in the owner's local memory
  std::int64_t local_offset_elems = 0;
};

/// A value: splits of every dimension into intervals, and one owner per block of the grid so made.
/// Ranks own any number of blocks, zero included. Sizes are 64-bit.
class PENSTOCK_API Layout {
 public:
  /// ScaLAPACK's layout. Dimension d is cut into blocks of block[d], dealt cyclically to grid[d] processes; ranks are
  /// numbered over the grid in `grid_order`. A rank holds its part as one dense local array in `storage` order.
  static Layout block_cyclic(std::vector<std::int64_t> shape, std::vector<std::int64_t> block,
                             std::vector<std::int64_t> grid, Order grid_order = Order::row_major,
                             Order storage = Order::row_major);

  /// Any grid. splits[d] are the borders of dimension d, from 0 to its length, strictly increasing; `owners` has one
  /// rank per block, last dimension fastest. A rank's blocks lie one after another in that order, each dense in
  /// `storage` order. `ranks` is the number of ranks, at least the largest owner + 1.
  static Layout grid(std::vector<std::vector<std::int64_t>> splits, std::vector<std::int32_t> owners,
                     std::int32_t ranks, Order storage = Order::row_major);

  /// The array cut along one dimension into `ranks` nearly equal pieces (the first ones longer by one).
  static Layout even(std::vector<std::int64_t> shape, std::int32_t ranks, std::size_t dimension = 0);

  /// The whole array on one rank.
  static Layout whole(std::vector<std::int64_t> shape, std::int32_t owner = 0, std::int32_t ranks = 1);

  const std::vector<std::int64_t>& shape() const { return shape_; }
  std::size_t dimensions() const { return shape_.size(); }
  std::int32_t ranks() const { return ranks_; }
  const std::vector<std::vector<std::int64_t>>& splits() const { return splits_; }
  /// Owner of the block with these indices into the splits.
  std::int32_t owner(std::span<const std::int64_t> block_index) const;

  std::int64_t local_size_elems(std::int32_t rank) const;
  /// Shape of the dense local array; empty for a layout that stores its blocks one after another.
  std::vector<std::int64_t> local_shape(std::int32_t rank) const;
  std::vector<LayoutBlock> local_blocks(std::int32_t rank) const;

  /// The same layout with rank r's blocks given to permutation[r].
  Layout relabeled(std::span<const std::int32_t> permutation) const;

  /// A text from which parse() makes an equal layout; goes into checkpoints.
  std::string serialize() const;
  static Layout parse(std::string_view text);
  friend bool operator==(const Layout& a, const Layout& b) { return a.serialize() == b.serialize(); }

 private:
  Layout() = default;
  std::vector<std::int64_t> shape_;
  std::vector<std::vector<std::int64_t>> splits_;
  std::int32_t ranks_ = 0;
  Order storage_ = Order::row_major;
  bool dense_ = false;  ///< one dense local array per rank (block-cyclic), else blocks one after another
  std::vector<std::vector<std::int32_t>> owner_coordinate_;  ///< block-cyclic: process coordinate of each interval
  std::vector<std::int64_t> process_grid_;
  Order grid_order_ = Order::row_major;
  std::vector<std::int32_t> owners_;       ///< grid: owner per block
  std::vector<std::int32_t> permutation_;  ///< empty: identity
};

}  // namespace penstock
