#include "redistribute/segmenter.hpp"

#include <algorithm>

namespace penstock::redistribute {
namespace {

constexpr std::int64_t kBlockElems = 128;  // side of a block
constexpr std::int64_t kPartElems = 512;   // side of a square of blocks, if the two memories differ in order

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

/// The largest n with n^exponent <= value, for value >= 1.
std::int64_t root(std::int64_t value, std::size_t exponent) {
  const auto fits = [&](std::int64_t n) {
    std::int64_t left = value;
    for (std::size_t i = 0; i < exponent; ++i) left /= n;
    return left >= 1;
  };
  std::int64_t n = 1;
  while (n < kBlockElems && fits(n + 1)) ++n;
  return n;
}

}  // namespace

std::int64_t TileOverlap::elems() const {
  std::int64_t product = 1;
  for (const SharedRuns* shared : axes) product *= shared->elems;
  return product;
}

std::vector<Segment> Segmenter::cut(const Package& package, std::int64_t segment_elems) {
  const std::size_t first = blocks_.size();
  for (const TileOverlap& overlap : package) cut(overlap, segment_elems);
  std::vector<Segment> segments;
  for (std::size_t i = first; i < blocks_.size(); ++i) {
    if (segments.empty() || segments.back().elems + blocks_[i].elems > segment_elems) segments.push_back({i, i, 0});
    segments.back().end_block = i + 1;
    segments.back().elems += blocks_[i].elems;
  }
  return segments;
}

LayoutTile Segmenter::tile(redistribute::Side side, std::int64_t index) const {
  const bool is_source = side == redistribute::Side::source;
  const auto& placed = placed_[is_source ? 0 : 1];
  if (const auto found = placed.find(index); found != placed.end()) return found->second;
  return (is_source ? pairing_.source() : pairing_.target()).tile(index);
}

void Segmenter::cut(const TileOverlap& overlap, std::int64_t segment_elems) {
  const LayoutTile source = tile(redistribute::Side::source, overlap.source_tile);
  const LayoutTile target = tile(redistribute::Side::target, overlap.target_tile);
  const std::size_t dimensions = source_order_.size();
  std::vector<std::vector<Run>> runs(dimensions);
  std::vector<std::vector<std::size_t>> parts(dimensions);  // borders among the runs
  bool is_dense = same_order_;                              // all faster dimensions are complete on both sides
  std::int64_t tile_elems = 1;                              // of the largest block, in the dimensions so far
  for (std::size_t i = dimensions; i-- > 0;) {
    const std::size_t d = source_order_[i];
    const SharedRuns& shared = *overlap.axes[d];
    const std::int64_t room = segment_elems / tile_elems;
    const std::int64_t limit = is_dense ? room : same_order_ ? std::min(room, kBlockElems) : root(room, i + 1);
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

std::int64_t Segmenter::runs(const TileOverlap& overlap) const {
  const LayoutTile source = pairing_.source().tile(overlap.source_tile);
  const LayoutTile target = pairing_.target().tile(overlap.target_tile);
  std::int64_t count = 1;
  std::int64_t run_elems = 1;
  bool is_dense = same_order_;  // all faster dimensions are complete on both sides
  for (std::size_t i = source_order_.size(); i-- > 0;) {
    const std::size_t d = source_order_[i];
    const std::size_t target_d = pairing_.target_dimension(d);
    const SharedRuns& shared = *overlap.axes[d];
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

void Segmenter::add(const LayoutTile& source, const LayoutTile& target, const std::vector<const Run*>& runs) {
  CopyBlock block{source.local_offset_elems, target.local_offset_elems, 1, sides_.size()};
  for (const std::size_t d : source_order_) {
    const Run& run = *runs[d];
    const std::int64_t source_stride = source.strides_elems[d];
    const std::int64_t target_stride = target.strides_elems[pairing_.target_dimension(d)];
    block.source_offset += run.source * source_stride;
    block.target_offset += run.target * target_stride;
    block.elems *= run.length;
    sides_.push_back({run.length, source_stride * run.source_step, target_stride * run.target_step});
  }
  blocks_.push_back(block);
}

void Segmenter::lay_out(const Segment& segment, Route route, BlockList& list) {
  struct Placed {
    std::int64_t package_offset;
    const CopyBlock* block;
  };
  std::vector<Placed> placed;
  std::int64_t package_offset = 0;
  for (std::size_t i = segment.first_block; i < segment.end_block; ++i) {
    placed.push_back({package_offset, &blocks_[i]});
    package_offset += blocks_[i].elems;
  }
  if (route == Route::package_to_target)
    std::stable_sort(placed.begin(), placed.end(),
                     [](const Placed& a, const Placed& b) { return a.block->target_offset < b.block->target_offset; });
  list.clear();
  for (const auto& [offset, block] : placed) {
    std::int64_t package_stride = 1;
    box_.clear();
    for (std::size_t i = pairing_.dimensions(); i-- > 0; package_stride *= box_.back().length) {
      const Side& side = sides_[block->first_side + i];
      box_.push_back({side.length, route == Route::package_to_target ? package_stride : side.source_stride,
                      route == Route::source_to_package ? package_stride : side.target_stride});
    }
    list.add(route == Route::package_to_target ? offset : block->source_offset,
             route == Route::source_to_package ? offset : block->target_offset, box_);
  }
}

}  // namespace penstock::redistribute
