#include "checkpoint/gather.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

namespace penstock::checkpoint {

namespace {

/// For one dimension and one coordinate of the target: its overlaps with each coordinate of the source.
using Overlaps = std::map<std::int64_t, std::vector<Overlap>>;

Overlaps overlaps_of(const Axis& source, const Axis& target, std::int64_t coordinate) {
  Overlaps overlaps;
  for (std::int64_t t = coordinate; t < target.intervals(); t += target.coordinates()) {
    const std::int64_t end = target.start(t + 1);
    for (std::int64_t at = target.start(t); at < end;) {
      const std::int64_t s = source.interval_of(at);
      const std::int64_t stop = std::min(end, source.start(s + 1));
      const Overlap overlap{source.local_start(s) + at - source.start(s), target.local_start(t) + at - target.start(t),
                            stop - at};
      std::vector<Overlap>& known = overlaps[s % source.coordinates()];
      // Merge adjacent overlaps: then few coordinates have few overlaps, however small the blocks.
      if (!known.empty() && known.back().source_start + known.back().length == overlap.source_start &&
          known.back().target_start + known.back().length == overlap.target_start) {
        known.back().length += overlap.length;
      } else {
        known.push_back(overlap);
      }
      at = stop;
    }
  }
  return overlaps;
}

/// Drops dimensions of length 1, and merges dimensions that are dense on both sides: fewer, longer runs.
void simplify(Piece& piece) {
  std::vector<Extent> kept;
  for (Extent& extent : piece.extents) {
    const Overlap only = extent.overlaps.front();
    if (extent.overlaps.size() == 1 && only.length == 1) {
      piece.source_offset_bytes += static_cast<std::uint64_t>(only.source_start * extent.source_stride_bytes);
      piece.target += only.target_start * extent.target_stride_bytes;
      continue;
    }
    const bool dense = extent.overlaps.size() == 1 && !kept.empty() &&
                       kept.back().source_stride_bytes == only.length * extent.source_stride_bytes &&
                       kept.back().target_stride_bytes == only.length * extent.target_stride_bytes;
    if (!dense) {
      kept.push_back(std::move(extent));
      continue;
    }
    Extent& outer = kept.back();
    outer.source_stride_bytes = extent.source_stride_bytes;
    outer.target_stride_bytes = extent.target_stride_bytes;
    for (Overlap& overlap : outer.overlaps) {
      overlap = {overlap.source_start * only.length + only.source_start,
                 overlap.target_start * only.length + only.target_start, overlap.length * only.length};
    }
  }
  piece.extents = std::move(kept);
}

/// Sets the range [first_byte, last_byte) of the object that holds the piece.
void bound(Piece& piece) {
  piece.first_byte = piece.last_byte = piece.source_offset_bytes;
  for (const Extent& extent : piece.extents) {
    const Overlap& last = extent.overlaps.back();
    piece.first_byte += static_cast<std::uint64_t>(extent.overlaps.front().source_start * extent.source_stride_bytes);
    piece.last_byte += static_cast<std::uint64_t>((last.source_start + last.length - 1) * extent.source_stride_bytes);
  }
  piece.last_byte += piece.item_bytes;
}

/// Copies the part of a piece that lies in some chunks of the object. Recurses through the dimensions and skips what
/// lies outside of the chunks. Elements never straddle chunks: both start at multiples of 64 bytes.
class ChunkCopy {
 public:
  /// `data`: the bytes [first, last) of the object; null: run() only looks whether the piece has any.
  ChunkCopy(const Piece& piece, std::uint64_t first, std::uint64_t last, const std::byte* data)
      : piece_(piece), first_(static_cast<std::int64_t>(first)), last_(static_cast<std::int64_t>(last)), data_(data) {
    // inner_last_[d]: the offset of the last item of the dimensions from d on.
    inner_last_.resize(piece.extents.size() + 1);
    for (std::size_t d = piece.extents.size(); d-- > 0;) {
      const Overlap& overlap = piece.extents[d].overlaps.back();
      inner_last_[d] =
          inner_last_[d + 1] + (overlap.source_start + overlap.length - 1) * piece.extents[d].source_stride_bytes;
    }
  }

  /// Whether the piece has a byte there.
  bool run() {
    copy(0, static_cast<std::int64_t>(piece_.source_offset_bytes), piece_.target);
    return found_;
  }

 private:
  void copy(std::size_t d, std::int64_t source, std::byte* target) {
    if (d == piece_.extents.size()) {
      if (source >= first_ && source < last_) copy_run(source, target, 1, 0, 0);
      return;
    }
    const Extent& extent = piece_.extents[d];
    const std::int64_t stride = extent.source_stride_bytes;
    // Positions with data in the chunk: source + p * stride < last, and the end of p's data > first.
    const std::int64_t low = divide_up(first_ - source - inner_last_[d + 1], stride);
    const std::int64_t high = divide_up(last_ - source, stride);
    auto overlap = std::partition_point(extent.overlaps.begin(), extent.overlaps.end(),
                                        [&](const Overlap& o) { return o.source_start + o.length <= low; });
    for (; overlap != extent.overlaps.end() && overlap->source_start < high && !done(); ++overlap) {
      const std::int64_t begin = std::max(low, overlap->source_start);
      const std::int64_t end = std::min(high, overlap->source_start + overlap->length);
      if (begin >= end) continue;
      std::byte* to = target + (overlap->target_start + begin - overlap->source_start) * extent.target_stride_bytes;
      if (d + 1 == piece_.extents.size()) {
        copy_run(source + begin * stride, to, end - begin, stride, extent.target_stride_bytes);
        continue;
      }
      for (std::int64_t p = begin; p < end && !done(); ++p, to += extent.target_stride_bytes) {
        copy(d + 1, source + p * stride, to);
      }
    }
  }

  void copy_run(std::int64_t source, std::byte* to, std::int64_t count, std::int64_t source_stride,
                std::int64_t target_stride) {
    found_ = true;
    if (data_ == nullptr) return;
    const std::byte* from = data_ + (source - first_);
    const auto item = static_cast<std::int64_t>(piece_.item_bytes);
    if (count == 1 || (source_stride == item && target_stride == item)) {
      std::memcpy(to, from, static_cast<std::size_t>(count * item));
      return;
    }
    switch (item) {
      case 1: return copy_items<1>(from, to, count, source_stride, target_stride);
      case 2: return copy_items<2>(from, to, count, source_stride, target_stride);
      case 4: return copy_items<4>(from, to, count, source_stride, target_stride);
      case 8: return copy_items<8>(from, to, count, source_stride, target_stride);
      default: return copy_items<16>(from, to, count, source_stride, target_stride);
    }
  }

  template <std::size_t kItemBytes>
  static void copy_items(const std::byte* from, std::byte* to, std::int64_t count, std::int64_t source_stride,
                         std::int64_t target_stride) {
    for (std::int64_t i = 0; i < count; ++i) std::memcpy(to + i * target_stride, from + i * source_stride, kItemBytes);
  }

  bool done() const { return found_ && data_ == nullptr; }

  /// The smallest p >= 0 with p * by >= value.
  static std::int64_t divide_up(std::int64_t value, std::int64_t by) { return value <= 0 ? 0 : (value + by - 1) / by; }

  const Piece& piece_;
  const std::int64_t first_;
  const std::int64_t last_;
  const std::byte* const data_;
  bool found_ = false;
  std::vector<std::int64_t> inner_last_;
};

}  // namespace

void plan_pieces(const Layout& source, const Layout& target, int rank, std::uint64_t item_bytes,
                 const std::vector<std::uint64_t>& offsets_bytes, Bytes memory,
                 std::vector<std::vector<Piece>>& pieces) {
  const std::size_t dimensions = source.dimensions();
  const auto item = static_cast<std::int64_t>(item_bytes);
  std::vector<std::map<std::int64_t, Overlaps>> known(dimensions);
  for (const LayoutTile& to : target.local_tiles(rank)) {
    std::vector<const Overlaps*> along(dimensions);
    bool empty = false;
    for (std::size_t d = 0; d < dimensions; ++d) {
      auto [at, is_new] = known[d].try_emplace(to.coordinate[d]);
      if (is_new) at->second = overlaps_of(source.axes()[d], target.axes()[d], to.coordinate[d]);
      along[d] = &at->second;
      empty = empty || at->second.empty();
    }
    if (empty) continue;
    // Each combination of source coordinates, one per dimension, is a tile of the source.
    std::vector<Overlaps::const_iterator> which;
    for (const Overlaps* overlaps : along) which.push_back(overlaps->begin());
    for (bool more = true; more;) {
      std::int64_t index = 0;
      for (std::size_t d = 0; d < dimensions; ++d) index = index * source.axes()[d].coordinates() + which[d]->first;
      const LayoutTile from = source.tile(index);
      const auto owner = static_cast<std::size_t>(source.owners()[static_cast<std::size_t>(index)]);
      Piece piece;
      piece.item_bytes = item_bytes;
      piece.source_offset_bytes = offsets_bytes[owner] + static_cast<std::uint64_t>(from.local_offset_elems * item);
      piece.target = memory.data() + to.local_offset_elems * item;
      for (std::size_t d = 0; d < dimensions; ++d) {
        piece.extents.push_back({from.strides_elems[d] * item, to.strides_elems[d] * item, which[d]->second});
      }
      std::stable_sort(piece.extents.begin(), piece.extents.end(),
                       [](const Extent& a, const Extent& b) { return a.source_stride_bytes > b.source_stride_bytes; });
      simplify(piece);
      bound(piece);
      pieces[owner].push_back(std::move(piece));
      more = false;
      for (std::size_t d = dimensions; d-- > 0 && !more;) {
        more = ++which[d] != along[d]->end();
        if (!more) which[d] = along[d]->begin();
      }
    }
  }
}

void sort_pieces(std::vector<Piece>& pieces) {
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.first_byte < b.first_byte; });
}

std::vector<std::uint64_t> needed_chunks(const std::vector<Piece>& pieces, std::uint64_t chunk_bytes) {
  std::vector<std::uint64_t> needed;
  std::vector<const Piece*> active;
  std::size_t next = 0;
  for (std::uint64_t index = 0; next < pieces.size() || !active.empty(); ++index) {
    if (active.empty()) index = std::max(index, pieces[next].first_byte / chunk_bytes);
    const std::uint64_t first = index * chunk_bytes;
    const std::uint64_t last = first + chunk_bytes;
    for (; next < pieces.size() && pieces[next].first_byte < last; ++next) active.push_back(&pieces[next]);
    const bool is_needed = std::any_of(active.begin(), active.end(), [&](const Piece* piece) {
      return ChunkCopy(*piece, first, last, nullptr).run();
    });
    if (is_needed) needed.push_back(index);
    std::erase_if(active, [&](const Piece* piece) { return piece->last_byte <= last; });
  }
  return needed;
}

void copy_from(const std::vector<Piece>& pieces, std::uint64_t offset_bytes, ConstBytes data) {
  const std::uint64_t end_bytes = offset_bytes + data.size();
  for (const Piece& piece : pieces) {
    if (piece.first_byte >= end_bytes) return;
    if (piece.last_byte > offset_bytes) ChunkCopy(piece, offset_bytes, end_bytes, data.data()).run();
  }
}

Bytes target_of(const std::vector<Piece>& pieces, std::uint64_t offset_bytes, std::uint64_t size_bytes) {
  // A piece without gaps that holds the first of these bytes is the last one that begins there or before: another one
  // that begins behind it would share bytes with it.
  const auto after = std::upper_bound(pieces.begin(), pieces.end(), offset_bytes,
                                      [](std::uint64_t offset, const Piece& one) { return offset < one.first_byte; });
  if (after == pieces.begin()) return {};
  const Piece& piece = *(after - 1);
  if (piece.last_byte < offset_bytes + size_bytes || piece.extents.size() != 1) return {};
  const Extent& extent = piece.extents[0];
  const auto item = static_cast<std::int64_t>(piece.item_bytes);
  const bool dense =
      extent.overlaps.size() == 1 && extent.source_stride_bytes == item && extent.target_stride_bytes == item;
  if (!dense) return {};
  std::byte* const begin = piece.target + extent.overlaps[0].target_start * item;
  return {begin + (offset_bytes - piece.first_byte), size_bytes};
}

std::vector<ChunkRead> reads_of(const std::vector<Piece>& pieces, const std::vector<std::uint64_t>& chunks,
                                std::uint64_t chunk_bytes, std::uint64_t data_bytes, std::uint64_t most) {
  std::vector<ChunkRead> reads;
  for (const std::uint64_t chunk : chunks) {
    const std::uint64_t begin = chunk * chunk_bytes;
    const Bytes target = target_of(pieces, begin, std::min(chunk_bytes, data_bytes - begin));
    if (!reads.empty()) {
      auto& [range, before] = reads.back();
      const bool follows = range.first + range.count == chunk && range.count < most;
      const bool contiguous = before.empty() ? target.empty() : before.data() + before.size() == target.data();
      if (follows && contiguous) {
        ++range.count;
        if (!target.empty()) before = {before.data(), before.size() + target.size()};
        continue;
      }
    }
    reads.push_back({{chunk, 1}, target});
  }
  return reads;
}

}  // namespace penstock::checkpoint
