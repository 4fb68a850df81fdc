// Cuts a package, all data of one rank for another, into blocks and segments.
//
// A block is so small that both sides of it lie in few pages: if every row lies on another page, address translation
// takes longer than the copy. A segment is a number of consecutive blocks, which travel together.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "redistribute/boxes.hpp"
#include "redistribute/overlay.hpp"

namespace penstock::redistribute {

/// The elements that a tile of the source and a tile of the target share: a product of runs.
struct TileOverlap {
  std::int64_t source_tile = 0;
  std::int64_t target_tile = 0;
  std::vector<const SharedRuns*> axes;  ///< one per dimension of the source

  std::int64_t elems() const;
};

/// Sorted by (source tile, target tile), so that both ranks cut it into the same blocks and segments.
using Package = std::vector<TileOverlap>;

/// Consecutive blocks of a Segmenter, which travel together.
struct Segment {
  std::size_t first_block = 0;
  std::size_t end_block = 0;
  std::int64_t elems = 0;
};

/// Where the data of a segment lies and where it goes. The package is contiguous memory between the two arrays.
enum class Route : std::uint8_t { source_to_package, package_to_target, source_to_target };

/// Cuts the packages of one pair of layouts. It owns their blocks. One thread at a time.
class Segmenter {
 public:
  /// The pairing must outlive the segmenter.
  explicit Segmenter(const Pairing& pairing) : pairing_(pairing) {}

  /// Sets the placement of a tile in memory that is not dense.
  void place(redistribute::Side side, LayoutTile tile) {
    placed_[side == redistribute::Side::source ? 0 : 1].insert_or_assign(tile.index, std::move(tile));
  }

  /// Cuts a package into segments. Its blocks are in the order of the source's memory; if the target's memory has
  /// another order, in squares in that order. A segment has at most `segment_elems` elements (at least 1); two
  /// consecutive segments have more.
  std::vector<Segment> cut(const Package& package, std::int64_t segment_elems);

  /// Number of runs of an overlap that are contiguous on both sides, with the layouts' own placement of tiles.
  std::int64_t runs(const TileOverlap& overlap) const;

  /// Removes all blocks. Segments become invalid.
  void clear() {
    blocks_.clear();
    sides_.clear();
  }

  /// Replaces `list` by the blocks of a segment. In a package, each segment starts at offset 0.
  void lay_out(const Segment& segment, Route route, BlockList& list);

 private:
  struct Side {
    std::int64_t length = 0;
    std::int64_t source_stride = 0;
    std::int64_t target_stride = 0;
  };
  /// A product of runs. In the package it is dense, in the order of the source's memory.
  struct CopyBlock {
    std::int64_t source_offset = 0;
    std::int64_t target_offset = 0;
    std::int64_t elems = 0;
    std::size_t first_side = 0;  ///< index into sides_: one per dimension, slowest of the source first
  };

  LayoutTile tile(redistribute::Side side, std::int64_t index) const;
  void cut(const TileOverlap& overlap, std::int64_t segment_elems);
  void add(const LayoutTile& source, const LayoutTile& target, const std::vector<const Run*>& runs);

  const Pairing& pairing_;
  std::unordered_map<std::int64_t, LayoutTile> placed_[2];
  std::vector<std::size_t> source_order_ = pairing_.memory_order(redistribute::Side::source);
  bool same_order_ = source_order_ == pairing_.memory_order(redistribute::Side::target);
  std::vector<CopyBlock> blocks_;
  std::vector<Side> sides_;
  std::vector<BoxSide> box_;
};

}  // namespace penstock::redistribute
