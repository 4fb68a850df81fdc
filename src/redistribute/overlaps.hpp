// A package, everything that one rank has for another, cut into overlaps and segments.
//
// An overlap is small enough that either side of it stays in few pages: looking up addresses costs more than the copy
// when every row lies on another page. A segment is a number of consecutive overlaps that travel together.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "redistribute/boxes.hpp"
#include "redistribute/overlay.hpp"

namespace penstock::redistribute {

/// What one tile of the source and one of the target share: a product of runs.
struct Piece {
  std::int64_t source_tile = 0;
  std::int64_t target_tile = 0;
  std::vector<const SharedRuns*> axes;  ///< per dimension of the source

  std::int64_t elems() const;
};

/// In order of (source tile, target tile), so that both ranks come to the same overlaps and segments.
using Package = std::vector<Piece>;

struct Segment {
  std::size_t first_overlap = 0;
  std::size_t end_overlap = 0;
  std::int64_t elems = 0;
};

enum class Route : std::uint8_t { source_to_package, package_to_target, source_to_target };

class Overlaps {
 public:
  /// The pairing must outlive the overlaps.
  explicit Overlaps(const Pairing& pairing) : pairing_(pairing) {}

  /// Where a tile lies in memory that is not dense; for the layout's own tiles it needs no saying.
  void place(redistribute::Side side, LayoutTile tile) {
    placed_[side == redistribute::Side::source ? 0 : 1].insert_or_assign(tile.index, std::move(tile));
  }

  /// Adds the overlaps of a package, which stand in the order of the source's memory, or in square parts in
  /// that order where the target's memory is ordered differently. No segment has more than `segment_elems` elements
  /// (at least 1), and no two neighbours could be one.
  std::vector<Segment> cut(const Package& package, std::int64_t segment_elems);

  /// In how many runs a piece lies that are contiguous on both sides, as the layouts place their tiles.
  std::int64_t runs(const Piece& piece) const;

  /// Forgets all overlaps, so that segments mean nothing any more.
  void clear() {
    overlaps_.clear();
    sides_.clear();
  }

  /// Replaces `list` by the blocks of a segment; in a package each segment begins at offset 0.
  void lay_out(const Segment& segment, Route route, BlockList& list);

 private:
  struct Side {
    std::int64_t length = 0;
    std::int64_t source_stride = 0;
    std::int64_t target_stride = 0;
  };
  /// A product of runs, dense in the package in the order of the source's memory.
  struct Overlap {
    std::int64_t source_offset = 0;
    std::int64_t target_offset = 0;
    std::int64_t elems = 0;
    std::size_t first_side = 0;  ///< into sides_, one per dimension, the slowest of the source first
  };

  LayoutTile tile(redistribute::Side side, std::int64_t index) const;
  void cut(const Piece& piece, std::int64_t segment_elems);
  void add(const LayoutTile& source, const LayoutTile& target, const std::vector<const Run*>& runs);

  const Pairing& pairing_;
  std::unordered_map<std::int64_t, LayoutTile> placed_[2];
  std::vector<std::size_t> source_order_ = pairing_.memory_order(redistribute::Side::source);
  bool same_order_ = source_order_ == pairing_.memory_order(redistribute::Side::target);
  std::vector<Overlap> overlaps_;
  std::vector<Side> sides_;
  std::vector<BoxSide> box_;
};

}  // namespace penstock::redistribute
