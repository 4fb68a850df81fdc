#include "redistribute/member.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "penstock/error.hpp"

namespace penstock::redistribute {

namespace {

/// The placement of this rank's tiles. `given` does not apply to a rank outside of this copy.
LocalMemory memory_of(const Layout& layout, std::int32_t rank, const std::optional<LocalMemory>& given,
                      std::int64_t leading_elems) {
  if (given && layout.local_size_elems(rank) > 0) {
    if (given->tiles.size() != layout.local_tiles(rank).size())
      throw Error(ErrorCode::invalid_argument, "redistribute: memory for " + std::to_string(given->tiles.size()) +
                                                   " tiles given, rank " + std::to_string(rank) + " has " +
                                                   std::to_string(layout.local_tiles(rank).size()));
    return *given;
  }
  return layout.local_memory(rank, leading_elems);
}

}  // namespace

Member::Member(const Layout& source, const Layout& target, const LayoutPair& given,
               const RedistributionOptions& options, const Team& team, ReadsCopy reads_copy)
    : rank_(team.rank),
      moved_(moved_layouts(source, target, options)),
      pairing_(moved_.source, moved_.target, options.op),
      segmenter_(pairing_),
      reads_copy_(std::move(reads_copy)) {
  const std::int32_t needed = std::max(source.ranks(), target.ranks());
  if (needed > team.size())
    throw Error(ErrorCode::invalid_argument, "redistribute: the layouts are for " + std::to_string(needed) +
                                                 " ranks; the communicator has only " + std::to_string(team.size()));
  const LocalMemory source_memory = memory_of(source, rank_, given.source_memory, options.source_leading_elems);
  const LocalMemory target_memory = memory_of(target, rank_, given.target_memory, options.target_leading_elems);
  const std::uint64_t input_bytes = size_bytes(options.input_dtype());
  const std::uint64_t output_bytes = size_bytes(options.dtype);
  for (const auto& [elems, element_bytes] :
       {std::pair(std::max(source.size_elems(), source_memory.size_elems), input_bytes),
        std::pair(std::max(target.size_elems(), target_memory.size_elems), output_bytes)}) {
    std::int64_t total_bytes = 0;
    if (__builtin_mul_overflow(elems, static_cast<std::int64_t>(element_bytes), &total_bytes))
      throw Error(ErrorCode::invalid_argument, "redistribute: " + std::to_string(elems) + " elements of " +
                                                   std::to_string(element_bytes) + " bytes are 2^63 bytes or more");
  }
  std::vector<std::int64_t> target_shape = options.shape;
  if (options.op != MatrixOp::none && target_shape.size() == 2) std::swap(target_shape[0], target_shape[1]);
  const auto region = [](Buffer buffer, std::int64_t elems, std::uint64_t element_bytes) {
    return Region{0, static_cast<std::uint64_t>(elems) * element_bytes, buffer};
  };
  input_ = region(Buffer::input, place(Side::source, source, source_memory, options.source_begin, options.shape),
                  input_bytes);
  output_ = region(Buffer::output, place(Side::target, target, target_memory, options.target_begin, target_shape),
                   output_bytes);
}

std::map<std::int32_t, Package> Member::packages(Side side) {
  const Layout& mine = side == Side::source ? pairing_.source() : pairing_.target();
  const Layout& other = side == Side::source ? pairing_.target() : pairing_.source();
  const std::size_t dimensions = pairing_.dimensions();
  std::map<std::int32_t, Package> by_rank;
  const auto reads_copy = [&](std::int32_t target_rank) { return !reads_copy_ || reads_copy_(target_rank); };
  if (side == Side::target && !reads_copy(rank_)) return by_rank;
  for (const LayoutTile& tile : mine.local_tiles(rank_)) {
    std::vector<const std::vector<SharedRuns>*> lists(dimensions);
    std::vector<std::int64_t> strides = pairing_.target_tile_strides();
    for (std::size_t d = 0; d < dimensions; ++d)
      lists[d] = &runs(side, d, tile.coordinate[side == Side::source ? d : pairing_.target_dimension(d)]);
    if (side == Side::target) {
      std::int64_t stride = 1;
      for (std::size_t d = dimensions; d-- > 0; stride *= other.axes()[d].coordinates()) strides[d] = stride;
    }
    std::vector<const SharedRuns*> chosen(dimensions);
    const auto visit = [&](auto&& self, std::size_t d, std::int64_t other_tile) -> void {
      if (d < dimensions) {
        for (const SharedRuns& shared : *lists[d]) {
          chosen[d] = &shared;
          self(self, d + 1, other_tile + shared.other * strides[d]);
        }
        return;
      }
      const std::int32_t peer = other.owners()[static_cast<std::size_t>(other_tile)];
      const bool forward = side == Side::source;
      if (forward && !reads_copy(peer)) return;
      by_rank[peer].push_back({forward ? tile.index : other_tile, forward ? other_tile : tile.index, chosen});
    };
    visit(visit, 0, 0);
  }
  for (auto& [peer, package] : by_rank)
    std::sort(package.begin(), package.end(), [](const TileOverlap& a, const TileOverlap& b) {
      return std::pair(a.source_tile, a.target_tile) < std::pair(b.source_tile, b.target_tile);
    });
  return by_rank;
}

const std::vector<SharedRuns>& Member::runs(Side side, std::size_t d, std::int64_t coordinate) {
  auto& known = runs_[side == Side::source ? 0 : 1];
  known.resize(pairing_.dimensions());
  const auto [entry, is_new] = known[d].try_emplace(coordinate);
  if (is_new)
    entry->second = redistribute::shared_runs(pairing_.source_axis(d), pairing_.target_axis(d), side, coordinate);
  return entry->second;
}

/// Tells the segmenter where this rank's tiles lie in its memory. Returns the memory's number of elements. Other ranks'
/// placement does not matter: data travels dense.
std::int64_t Member::place(Side side, const Layout& whole, const LocalMemory& given, std::vector<std::int64_t> begin,
                           const std::vector<std::int64_t>& shape) {
  const Layout& part = side == Side::source ? moved_.source : moved_.target;
  if (begin.empty()) begin.resize(whole.dimensions(), 0);
  const LocalMemory memory = shape.empty() ? given : whole.subarray_memory(begin, shape, rank_, given);
  std::vector<LayoutTile> tiles = part.local_tiles(rank_);
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    const LocalMemory::Tile& place = memory.tiles.at(i);
    if (place.offset_elems == tiles[i].local_offset_elems && place.strides_elems == tiles[i].strides_elems) continue;
    tiles[i].local_offset_elems = place.offset_elems;
    tiles[i].strides_elems = place.strides_elems;
    segmenter_.place(side, std::move(tiles[i]));
  }
  return memory.size_elems;
}

}  // namespace penstock::redistribute
