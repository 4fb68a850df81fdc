#include "collectives/parts/node_tasks.hpp"

#include <algorithm>
#include <array>

namespace penstock::collectives {
namespace {

constexpr std::uint64_t kMaxTaskElementBytes = 64 << 10;                 // a task combines block by block of this size
constexpr std::uint64_t kMaxSegmentPieces = kMaxTasks / kMaxTaskGroups;  // of a segment
constexpr std::uint64_t kWholePieceRanks = 32;  // with more, each has so many sources or targets that it is cut further
constexpr std::uint32_t kMaxNodeRanks = kMaxTasks / 2;

}  // namespace

std::uint64_t task_pieces(std::uint64_t bytes, std::uint64_t ranks, std::uint64_t most_pieces) {
  const std::uint64_t piece_bytes = kTaskBytes * kWholePieceRanks / std::max(kWholePieceRanks, ranks);
  return std::clamp<std::uint64_t>(bytes / piece_bytes, 1, std::min(kMaxSegmentPieces, most_pieces));
}

bool shared_node(const Team& team, const Collective& collective) {
  return team.single_copy && team.size() > 1 && static_cast<std::uint32_t>(team.size()) <= kMaxNodeRanks &&
         node_count(team) == 1 && collective.radix >= 2 && collective.item_bytes() <= kMaxTaskElementBytes;
}

bool shared_nodes(const Team& team, const Collective& collective) {
  const int nodes = node_count(team);
  return nodes < team.size() && shares_tasks(team, collective, nodes, largest_node(team));
}

bool shares_tasks(const Team& team, const Collective& collective, int nodes, int largest) {
  return team.single_copy && nodes > 1 && nodes < team.size() && collective.item_bytes() <= kMaxTaskElementBytes &&
         static_cast<std::uint32_t>(largest) <= kMaxNodeRanks;
}

int levels(int size, int radix) {
  int count = 0;
  for (std::int64_t reached = 1; reached < size; reached *= radix) ++count;
  return count;
}

std::vector<Edge> edges(int size, int radix) {
  std::vector<Edge> all;
  const int height = levels(size, radix);
  std::int64_t distance = 1;
  for (int i = 1; i < height; ++i) distance *= radix;
  for (int level = 1; level <= height; ++level, distance /= radix)
    for (std::int64_t parent = 0; parent < size; parent += distance * radix)
      for (std::int64_t child = parent + distance; child < std::min<std::int64_t>(size, parent + distance * radix);
           child += distance)
        all.push_back({static_cast<int>(parent), static_cast<int>(child), level,
                       static_cast<int>(std::min<std::int64_t>(distance, size - child))});
  return all;
}

Group from_root(const Team& team, const Collective& collective) {
  Group group{everyone(team), (team.rank - collective.root + team.size()) % team.size()};
  std::rotate(group.ranks.begin(), group.ranks.begin() + collective.root, group.ranks.end());
  return group;
}

std::vector<int> everyone(const Team& team) {
  std::vector<int> ranks(static_cast<std::size_t>(team.size()));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) ranks[rank] = static_cast<int>(rank);
  return ranks;
}

Segments task_segments(const Collective& collective, std::uint64_t default_bytes, int tasks_per_segment) {
  return {collective, default_bytes,
          std::max(1u, kMaxTasks / static_cast<std::uint32_t>(std::max(1, tasks_per_segment)))};
}

int targets_per_task(int size, int wanted) {
  const int most_tasks = static_cast<int>(kMaxTasks) / size;  // of a block
  return std::max(wanted, (size + most_tasks - 1) / most_tasks);
}

std::vector<RankRegion> of_each(std::span<const int> ranks, Region region) {
  std::vector<RankRegion> regions;
  for (const int rank : ranks) regions.push_back({region, rank});
  return regions;
}

void combine_on_node(Sequence& sequence, const Group& node, const Collective& collective, Region from, Region into,
                     const NodeWork& work) {
  if (node.size() < 2 || from.size_bytes == 0) return;
  const std::uint64_t element_bytes = collective.item_bytes();
  const std::uint64_t elements = from.size_bytes / element_bytes;
  const std::uint64_t pieces = task_pieces(from.size_bytes, node.ranks.size(), work.most_pieces);
  std::vector<int> ranks = node.ranks;
  std::ranges::sort(ranks);
  for (std::uint64_t i = 0; i < pieces; ++i)
    sequence.task({.segment = work.segment}, of_each(ranks, part_of(from, elements, element_bytes, pieces, i)),
                  std::array{RankRegion{part_of(into, elements, element_bytes, pieces, i), node.ranks[work.slot]}});
}

void spread_on_node(Sequence& sequence, const Group& node, const Collective& collective, Region data,
                    const NodeWork& work) {
  std::vector<int> others = node.ranks;
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(work.slot));
  copy_on_node(sequence, node, collective, data, others, data, work);
}

void copy_on_node(Sequence& sequence, const Group& node, const Collective& collective, Region data,
                  std::span<const int> ranks, Region into, const NodeWork& work) {
  if (ranks.empty() || data.size_bytes == 0) return;
  const std::uint64_t element_bytes = collective.item_bytes();
  const std::uint64_t elements = data.size_bytes / element_bytes;
  const std::uint64_t pieces = task_pieces(data.size_bytes, node.ranks.size(), work.most_pieces);
  for (std::uint64_t i = 0; i < pieces; ++i)
    sequence.task({.segment = work.segment},
                  std::array{RankRegion{part_of(data, elements, element_bytes, pieces, i), node.ranks[work.slot]}},
                  of_each(ranks, part_of(into, elements, element_bytes, pieces, i)));
}

void GrowingTasks::add(int level, std::uint32_t segment, int from, int to, std::span<const RankRegion> sources,
                       RankRegion target) {
  if (target.region.size_bytes == 0) return;
  auto& to_last = last_[static_cast<std::size_t>(to)];
  const SharedTask task{.after = {last_[static_cast<std::size_t>(from)], to_last},
                        .segment = segment,
                        .level = static_cast<std::uint16_t>(level)};
  to_last = sequence_.task(task, sources, std::array{target});
}

}  // namespace penstock::collectives
