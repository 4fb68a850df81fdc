#include <algorithm>
#include <utility>

#include "redistribute/copies.hpp"
#include "redistribute/overlay.hpp"
#include "redistribute/volumes.hpp"

namespace penstock {
namespace {

/// The volumes of one axis, grouped by source coordinate.
struct AxisTable {
  std::vector<redistribute::AxisVolume> volumes;
  std::vector<std::size_t> first;  ///< begin of each source coordinate's volumes; last, the end

  AxisTable(const Axis& source, const Axis& target) : volumes(redistribute::axis_volumes(source, target)) {
    first.assign(static_cast<std::size_t>(source.coordinates()) + 1, 0);
    for (const redistribute::AxisVolume& volume : volumes) ++first[static_cast<std::size_t>(volume.source) + 1];
    for (std::size_t c = 1; c < first.size(); ++c) first[c] += first[c - 1];
  }

  std::span<const redistribute::AxisVolume> of(std::int64_t coordinate) const {
    const auto c = static_cast<std::size_t>(coordinate);
    return std::span(volumes).subspan(first[c], first[c + 1] - first[c]);
  }
};

/// visit_volumes() for layouts that are not replicated.
void visit_volumes_of_copy(const Layout& source, const Layout& target, MatrixOp op,
                           const redistribute::ReadsCopy& reads_copy,
                           const std::function<void(std::span<const PairVolume>)>& visit_source) {
  const redistribute::Pairing pairing(source, target, op);
  const std::size_t dimensions = pairing.dimensions();
  const std::vector<std::int64_t> strides = pairing.target_tile_strides();
  std::vector<AxisTable> tables;
  for (std::size_t d = 0; d < dimensions; ++d) tables.emplace_back(pairing.source_axis(d), pairing.target_axis(d));

  const std::vector<std::int32_t>& owners = target.owners();
  std::vector<PairVolume> of_rank;
  std::vector<std::int64_t> to_rank(static_cast<std::size_t>(target.ranks()), 0);
  std::vector<std::int32_t> touched;
  std::vector<std::span<const redistribute::AxisVolume>> lists(dimensions);
  for (std::int32_t rank = 0; rank < source.ranks(); ++rank) {
    for (const LayoutTile& tile : source.local_tiles(rank)) {
      for (std::size_t d = 0; d < dimensions; ++d) lists[d] = tables[d].of(tile.coordinate[d]);
      const auto visit = [&](auto&& self, std::size_t d, std::int64_t target_tile, std::int64_t elems) -> void {
        if (d + 1 < dimensions) {
          for (const redistribute::AxisVolume& volume : lists[d])
            self(self, d + 1, target_tile + volume.target * strides[d], elems * volume.elems);
          return;
        }
        for (const redistribute::AxisVolume& volume : lists[d]) {
          const std::int32_t owner = owners[static_cast<std::size_t>(target_tile + volume.target * strides[d])];
          std::int64_t& sum = to_rank[static_cast<std::size_t>(owner)];
          if (sum == 0) touched.push_back(owner);
          sum += elems * volume.elems;
        }
      };
      if (dimensions == 0) {  // one element
        touched.push_back(owners[0]);
        to_rank[static_cast<std::size_t>(owners[0])] = 1;
      } else {
        visit(visit, 0, 0, 1);
      }
    }
    if (touched.size() > to_rank.size() / 16) {
      touched.clear();
      for (std::size_t other = 0; other < to_rank.size(); ++other)
        if (to_rank[other] != 0) touched.push_back(static_cast<std::int32_t>(other));
    } else {
      std::sort(touched.begin(), touched.end());
    }
    of_rank.clear();
    for (const std::int32_t other : touched) {
      if (!reads_copy || reads_copy(other)) of_rank.push_back({rank, other, to_rank[static_cast<std::size_t>(other)]});
      to_rank[static_cast<std::size_t>(other)] = 0;
    }
    touched.clear();
    visit_source(of_rank);
  }
}

}  // namespace

void redistribute::visit_volumes(const Layout& source, const Layout& target, MatrixOp op,
                                 const std::function<void(std::span<const PairVolume>)>& visit_source) {
  for_each_copy(source, target, [&](const Layout& from, const Layout& to, const ReadsCopy& reads_copy) {
    visit_volumes_of_copy(from, to, op, reads_copy, visit_source);
  });
}

std::vector<PairVolume> transfer_volumes(const Layout& source, const Layout& target, MatrixOp op) {
  // Count first: touching new memory takes longer than computing the volumes again.
  std::size_t count = 0;
  redistribute::visit_volumes(source, target, op,
                              [&](std::span<const PairVolume> of_rank) { count += of_rank.size(); });
  std::vector<PairVolume> result;
  result.reserve(count);
  redistribute::visit_volumes(source, target, op, [&](std::span<const PairVolume> of_rank) {
    result.insert(result.end(), of_rank.begin(), of_rank.end());
  });
  if (source.copies() > 1 || target.copies() > 1)
    std::sort(result.begin(), result.end(), [](const PairVolume& a, const PairVolume& b) {
      return std::pair(a.source, a.target) < std::pair(b.source, b.target);
    });
  return result;
}

}  // namespace penstock
