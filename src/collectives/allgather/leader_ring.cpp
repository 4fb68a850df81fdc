// The ranks of each node exchange their blocks. The leaders pass the blocks of whole nodes around a ring, and each
// leader spreads received blocks inside its node. Blocks that are adjacent in the result travel in one message. Cost: k
// - 1 rounds between k nodes; a node receives the blocks of the others once. Valid for every team and size; for long
// blocks.
#include <algorithm>
#include <array>

#include "collectives/parts/node_tasks.hpp"
#include "collectives/parts/pieces.hpp"

namespace penstock::collectives {

namespace {

static_assert(kMaxOwnTasks + kMaxRingPieces * kMaxTasksOfPiece <= kMaxTasks);

struct Piece {
  std::size_t node;
  Region region;
};

// A message of the ring. All ranks have the pieces in the same order.
std::vector<Piece> cut(const std::vector<std::vector<int>>& by_node, const Collective& collective, Region all) {
  std::vector<std::pair<std::size_t, Run>> runs;
  for (std::size_t node = 0; node < by_node.size(); ++node) {
    std::vector<int> ranks = by_node[node];
    std::ranges::sort(ranks);
    const Group group{ranks, -1};
    for (const Run run : runs_of(group, 0, group.size())) runs.emplace_back(node, run);
  }
  const std::uint64_t most = std::max<std::uint64_t>(1, kMaxRingPieces / std::max<std::size_t>(1, runs.size()));
  std::vector<Piece> pieces;
  for (const auto& [node, run] : runs) {
    const Region blocks = blocks_of(all, collective, run);
    const std::uint64_t count = pieces_of(blocks.size_bytes, collective.segment_bytes, most);
    const std::uint64_t element_bytes = collective.item_bytes();
    for (std::uint64_t i = 0; i < count; ++i)
      pieces.push_back({node, part_of(blocks, blocks.size_bytes / element_bytes, element_bytes, count, i)});
  }
  return pieces;
}

}  // namespace

Plan allgather_leader_ring(const Team& team, const Collective& collective) {
  const std::vector<std::vector<int>> by_node = ranks_by_node(team, 0);
  const Group node = node_group(team, 0);
  const Group ring = leaders(team, 0);
  const Region all = result(team, collective);
  const Region own = contribution(team, collective);
  const std::vector<Piece> pieces = cut(by_node, collective, all);
  const std::size_t nodes = by_node.size();
  std::size_t here = 0;
  while (!team.same_node(by_node[here][0], team.rank)) ++here;
  const bool by_tasks = block_bytes(collective) * static_cast<std::uint64_t>(team.size()) > kTaskBytes &&
                        shared_nodes(team, collective) && ring_fits_tasks(pieces.size(), node.ranks.size());
  const Tree tree = tree_of_node(team, node);
  const auto tag_of = [&](std::size_t piece) { return static_cast<std::uint32_t>(1 + piece); };
  Sequence sequence("allgather/leader_ring", team);

  if (!by_tasks) {
    // The others also receive their own block, as part of their node's.
    if (node.self == 0) sequence.copy(own, block_of(all, collective, team.rank));
    for (int i = 1; i < node.size(); ++i) {
      if (node.self == 0) sequence.recv(block_of(all, collective, node[i]), node[i], 0);
      if (node.self == i) sequence.send(own, node[0], 0);
    }
  } else if (node.size() == 1) {
    sequence.copy(own, block_of(all, collective, team.rank));
  } else {
    for (const int rank : node.ranks) {
      std::vector<int> ranks = node.ranks;
      if (collective.in_place) std::erase(ranks, rank);
      const Region block = block_of(all, collective, rank);
      const Region from = collective.in_place ? block : Region{0, block.size_bytes, Buffer::input};
      const std::uint64_t count = own_pieces(block.size_bytes, node.ranks.size());
      for (std::uint64_t i = 0; i < count; ++i)
        sequence.task({}, std::array{RankRegion{part_of(from, block.size_bytes, 1, count, i), rank}},
                      of_each(ranks, part_of(block, block.size_bytes, 1, count, i)));
    }
    sequence.publish_tasks();
  }

  const auto pass_on = [&](std::size_t piece) {
    const Region region = pieces[piece].region;
    if (tree.parent >= 0) sequence.recv(region, tree.parent, tag_of(piece));
    for (const Tree::Edge& child : tree.children) sequence.send(region, child.rank, tag_of(piece));
  };
  if (!by_tasks)
    for (std::size_t i = 0; i < pieces.size(); ++i)
      if (pieces[i].node == here) pass_on(i);
  // One task group per several pieces, since the engine has room for kMaxTaskGroups.
  const std::size_t per_group = (pieces.size() + kMaxTaskGroups - 2) / (kMaxTaskGroups - 1);
  std::size_t unpublished = 0;
  for (std::size_t round = 0; round + 1 < nodes; ++round) {
    const std::size_t leaving = (here + nodes - round) % nodes;
    const std::size_t coming = (here + 2 * nodes - round - 1) % nodes;
    for (std::size_t i = 0; i < pieces.size(); ++i)
      if (ring.contains_self() && pieces[i].node == leaving)
        sequence.send(pieces[i].region, ring[static_cast<int>((here + 1) % nodes)], tag_of(i));
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].node != coming) continue;
      if (ring.contains_self())
        sequence.recv(pieces[i].region, ring[static_cast<int>((here + nodes - 1) % nodes)], tag_of(i));
      if (!by_tasks) {
        pass_on(i);
        continue;
      }
      spread_on_node(sequence, node, collective, pieces[i].region,
                     {.segment = static_cast<std::uint32_t>(i), .most_pieces = kMaxTasksOfPiece});
      if (++unpublished % per_group == 0) sequence.publish_tasks();
    }
  }
  sequence.publish_tasks();
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
