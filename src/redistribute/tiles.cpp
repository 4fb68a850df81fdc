#include "redistribute/tiles.hpp"

#include <algorithm>

namespace penstock::redistribute {
namespace {

constexpr std::int64_t kTileElems = 128;  // side of a tile
constexpr std::int64_t kPartElems = 512;  // side of a square of tiles, where the two memories differ in order

std::vector<Run> cut_runs(const std::vector<Run>& runs, std::int64_t limit) {
  std::vector<Run> result;
  for (const Run& run : runs)
    for (std::int64_t at = 0; at < run.length; at += limit)
      result.push_back({run.source + at * run.source_step, run.target + at * run.target_step,
                        std::min(limit, run.length - at), run.source_step, run.target_step});
  return result;
}

std::int64_t longest(const std::vector<Run>& runs) {
  std::int64_t length = 0;
  for (const Run& run : runs) length = std::max(length, run.length);
  return length;
}

/// The greatest n with n^exponent <= value, for value >= 1.
std::int64_t root(std::int64_t value, std::size_t exponent) {
  const auto fits = [&](std::int64_t n) {
    std::int64_t left = value;
    for (std::size_t i = 0; i < exponent; ++i) left /= n;
    return left >= 1;
  };
  std::int64_t n = 1;
  while (n < kTileElems && fits(n + 1)) ++n;
  return n;
}

}  // namespace

std::int64_t Piece::elems() const {
  std::int64_t product = 1;
  for (const SharedRuns* shared : axes) product *= shared->elems;
  return product;
}

std::vector<Segment> Tiles::cut(const Package& package, std::int64_t segment_elems) {
  const std::size_t first = tiles_.size();
  for (const Piece& piece : package) cut(piece, segment_elems);
  std::vector<Segment> segments;
  for (std::size_t i = first; i < tiles_.size(); ++i) {
    if (segments.empty() || segments.back().elems + tiles_[i].elems > segment_elems) segments.push_back({i, i, 0});
    segments.back().end_tile = i + 1;
    segments.back().elems += tiles_[i].elems;
  }
  return segments;
}

LayoutCell Tiles::cell(redistribute::Side side, std::int64_t index) const {
  const bool is_source = side == redistribute::Side::source;
  const auto& placed = placed_[is_source ? 0 : 1];
  if (const auto found = placed.find(index); found != placed.end()) return found->second;
  return (is_source ? pairing_.source() : pairing_.target()).cell(index);
}

void Tiles::cut(const Piece& piece, std::int64_t segment_elems) {
  const LayoutCell source = cell(redistribute::Side::source, piece.source_cell);
  const LayoutCell target = cell(redistribute::Side::target, piece.target_cell);
  const std::size_t dimensions = source_order_.size();
  std::vector<std::vector<Run>> runs(dimensions);
  std::vector<std::vector<std::size_t>> parts(dimensions);  // borders among the runs
  bool is_dense = same_order_;                              // all faster dimensions are whole on both sides
  std::int64_t tile_elems = 1;                              // of the largest one, in the dimensions so far
  for (std::size_t i = dimensions; i-- > 0;) {
    const std::size_t d = source_order_[i];
    const SharedRuns& shared = *piece.axes[d];
    const std::int64_t room = segment_elems / tile_elems;
    const std::int64_t limit = is_dense ? room : same_order_ ? std::min(room, kTileElems) : root(room, i + 1);
    runs[d] = cut_runs(shared.runs, limit);
    tile_elems *= longest(runs[d]);
    is_dense = is_dense && shared.runs.size() == 1 && shared.elems == source.shape[d] &&
               shared.elems == target.shape[pairing_.target_dimension(d)];
    parts[d].push_back(0);
    std::int64_t part_elems = 0;
    for (std::size_t k = 0; k < runs[d].size(); ++k) {
      part_elems += runs[d][k].length;
      if (k + 1 < runs[d].size() && (same_order_ || part_elems < kPartElems)) continue;
      parts[d].push_back(k + 1);
      part_elems = 0;
    }
  }

  std::vector<std::size_t> part(dimensions);
  std::vector<const Run*> chosen(dimensions);
  const auto visit_runs = [&](auto&& self, std::size_t i) -> void {
    if (i == dimensions) return add(source, target, chosen);
    const std::size_t d = source_order_[i];
    for (std::size_t k = parts[d][part[d]]; k < parts[d][part[d] + 1]; ++k) {
      chosen[d] = &runs[d][k];
      self(self, i + 1);
    }
  };
  const auto visit_parts = [&](auto&& self, std::size_t i) -> void {
    if (i == dimensions) return visit_runs(visit_runs, 0);
    const std::size_t d = source_order_[i];
    for (part[d] = 0; part[d] + 1 < parts[d].size(); ++part[d]) self(self, i + 1);
  };
  visit_parts(visit_parts, 0);
}

std::int64_t Tiles::runs(const Piece& piece) const {
  const LayoutCell source = pairing_.source().cell(piece.source_cell);
  const LayoutCell target = pairing_.target().cell(piece.target_cell);
  std::int64_t count = 1;
  std::int64_t run_elems = 1;
  bool is_dense = same_order_;  // all faster dimensions are whole on both sides
  for (std::size_t i = source_order_.size(); i-- > 0;) {
    const std::size_t d = source_order_[i];
    const std::size_t target_d = pairing_.target_dimension(d);
    const SharedRuns& shared = *piece.axes[d];
    if (shared.elems == 1) {
      is_dense = is_dense && source.shape[d] == 1 && target.shape[target_d] == 1;
      continue;
    }
    const bool follows =
        is_dense && source.strides_elems[d] == run_elems && target.strides_elems[target_d] == run_elems;
    const bool has_steps = std::ranges::any_of(
        shared.runs, [](const Run& run) { return run.length > 1 && (run.source_step != 1 || run.target_step != 1); });
    count *= !follows || has_steps ? shared.elems : std::ssize(shared.runs);
    is_dense = follows && std::ssize(shared.runs) == 1 && shared.elems == source.shape[d] &&
               shared.elems == target.shape[target_d];
    run_elems *= shared.elems;
  }
  return count;
}

void Tiles::add(const LayoutCell& source, const LayoutCell& target, const std::vector<const Run*>& runs) {
  Tile tile{source.local_offset_elems, target.local_offset_elems, 1, sides_.size()};
  for (const std::size_t d : source_order_) {
    const Run& run = *runs[d];
    const std::int64_t source_stride = source.strides_elems[d];
    const std::int64_t target_stride = target.strides_elems[pairing_.target_dimension(d)];
    tile.source_offset += run.source * source_stride;
    tile.target_offset += run.target * target_stride;
    tile.elems *= run.length;
    sides_.push_back({run.length, source_stride * run.source_step, target_stride * run.target_step});
  }
  tiles_.push_back(tile);
}

void Tiles::lay_out(const Segment& segment, Route route, BlockList& list) {
  struct Placed {
    std::int64_t package_offset;
    const Tile* tile;
  };
  std::vector<Placed> placed;
  std::int64_t package_offset = 0;
  for (std::size_t i = segment.first_tile; i < segment.end_tile; ++i) {
    placed.push_back({package_offset, &tiles_[i]});
    package_offset += tiles_[i].elems;
  }
  if (route == Route::package_to_target)
    std::stable_sort(placed.begin(), placed.end(),
                     [](const Placed& a, const Placed& b) { return a.tile->target_offset < b.tile->target_offset; });
  list.clear();
  for (const auto& [offset, tile] : placed) {
    std::int64_t package_stride = 1;
    box_.clear();
    for (std::size_t i = pairing_.dimensions(); i-- > 0; package_stride *= box_.back().length) {
      const Side& side = sides_[tile->first_side + i];
      box_.push_back({side.length, route == Route::package_to_target ? package_stride : side.source_stride,
                      route == Route::source_to_package ? package_stride : side.target_stride});
    }
    list.add(route == Route::package_to_target ? offset : tile->source_offset,
             route == Route::source_to_package ? offset : tile->target_offset, box_);
  }
}

}  // namespace penstock::redistribute
