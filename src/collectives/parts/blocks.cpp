// The places of the ranks' blocks: consecutive, or by counts and displacements.
#include "collectives/parts/blocks.hpp"

#include <algorithm>
#include <numeric>

#include "collectives/parts/group.hpp"

namespace penstock::collectives {

std::uint64_t count_of(const Blocks& blocks, const Collective& collective, int rank) {
  return blocks.counts.empty() ? collective.count : blocks.counts[static_cast<std::size_t>(rank)];
}

std::uint64_t displacement_of(const Blocks& blocks, const Collective& collective, int rank) {
  if (!blocks.displacements.empty()) return blocks.displacements[static_cast<std::size_t>(rank)];
  if (blocks.counts.empty()) return collective.count * static_cast<std::uint64_t>(rank);
  return std::accumulate(blocks.counts.begin(), blocks.counts.begin() + rank, std::uint64_t{0});
}

void place_blocks(Blocks& blocks) {
  if (!blocks.displacements.empty()) return;
  blocks.displacements.resize(blocks.counts.size());
  std::exclusive_scan(blocks.counts.begin(), blocks.counts.end(), blocks.displacements.begin(), std::uint64_t{0});
}

std::uint64_t extent_bytes(const Blocks& blocks, const Collective& collective, int size) {
  std::uint64_t end = 0;
  std::uint64_t next = 0;  // begin of the next block if there are no displacements
  for (int rank = 0; rank < size; ++rank) {
    const std::uint64_t count = count_of(blocks, collective, rank);
    const std::uint64_t begin =
        blocks.displacements.empty() ? next : blocks.displacements[static_cast<std::size_t>(rank)];
    if (count > 0) end = std::max(end, begin + count);
    next += count;
  }
  return end * collective.item_bytes();
}

std::uint64_t extent_bytes(const Blocks& blocks, const Collective& collective, std::span<const Neighbor> neighbors) {
  if (blocks.counts.empty()) return extent_bytes(blocks, collective, static_cast<int>(neighbors.size()));
  // The blocks of neighbours that do not exist are never touched, so the buffer may end before them.
  Blocks touched = blocks;
  place_blocks(touched);
  for (std::size_t i = 0; i < neighbors.size(); ++i)
    if (neighbors[i].rank == Neighbor::kNone) touched.counts[i] = 0;
  return extent_bytes(touched, collective, static_cast<int>(neighbors.size()));
}

std::span<const Neighbor> sources_of(const Team& team, const Collective& collective) {
  return collective.graph->sources(team.rank);
}

std::span<const Neighbor> destinations_of(const Team& team, const Collective& collective) {
  return collective.graph->destinations(team.rank);
}

namespace {

Region region_of(const Blocks& blocks, const Collective& collective, int rank, Region all) {
  const std::uint64_t element_bytes = collective.item_bytes();
  return {all.offset_bytes + displacement_of(blocks, collective, rank) * element_bytes,
          count_of(blocks, collective, rank) * element_bytes, all.buffer};
}

}  // namespace

Region send_block(const Team& team, const Collective& collective, int peer) {
  const bool at_root = team.rank == collective.root;
  switch (collective.kind) {
    case CollectiveKind::scatter:
    case CollectiveKind::scatterv:
      return at_root ? region_of(collective.send, collective, peer, {0, 0, Buffer::input}) : Region{};
    case CollectiveKind::alltoall:
    case CollectiveKind::alltoallv:
    case CollectiveKind::alltoallw:
      return collective.in_place ? receive_block(team, collective, peer)
                                 : region_of(collective.send, collective, peer, {0, 0, Buffer::input});
    case CollectiveKind::neighbor_allgather:
    case CollectiveKind::neighbor_allgatherv: return contribution(team, collective);
    case CollectiveKind::neighbor_alltoall:
    case CollectiveKind::neighbor_alltoallv:
    case CollectiveKind::neighbor_alltoallw: return region_of(collective.send, collective, peer, {0, 0, Buffer::input});
    default: return {};
  }
}

Region receive_block(const Team& team, const Collective& collective, int peer) {
  if (is_rooted(collective.kind) && team.rank != collective.root) return {0, 0, Buffer::output};
  return region_of(collective.receive, collective, peer, {0, 0, Buffer::output});
}

Region parts_of(Region all, const Collective& collective, Run run) {
  const auto elements_of = [&](int first, int end) {
    std::uint64_t elements = 0;
    for (int rank = first; rank < end; ++rank) elements += count_of(collective.receive, collective, rank);
    return elements;
  };
  // Parts follow each other, wherever the blocks of an allgatherv lie.
  const std::uint64_t before = is_reduce_scatter(collective.kind)
                                   ? displacement_of(collective.receive, collective, run.first)
                                   : elements_of(0, run.first);
  return {all.offset_bytes + before * collective.item_bytes(),
          elements_of(run.first, run.first + run.count) * collective.item_bytes(), all.buffer};
}

Region part_of_rank(Region all, const Collective& collective, int rank) { return parts_of(all, collective, {rank, 1}); }

std::uint64_t part_elements(const Collective& collective, int rank) {
  return count_of(collective.receive, collective, rank);
}

std::uint64_t all_elements(const Team& team, const Collective& collective) {
  return parts_of({}, collective, {0, team.size()}).size_bytes / collective.item_bytes();
}

std::vector<std::vector<int>> ranks_by_node(const Team& team) {
  std::vector<std::vector<int>> ranks(static_cast<std::size_t>(node_count(team)));
  for (int rank = 0; rank < team.size(); ++rank)
    ranks[static_cast<std::size_t>(team.node_of_rank[static_cast<std::size_t>(rank)])].push_back(rank);
  return ranks;
}

bool several_nodes(const Team& team, const Collective&) {
  const int nodes = node_count(team);
  return nodes > 1 && nodes < team.size();
}

bool nodes_in_order(const Team& team, const Collective& collective) {
  // Nodes are numbered by first appearance.
  return several_nodes(team, collective) && std::ranges::is_sorted(team.node_of_rank);
}

}  // namespace penstock::collectives
