// The leader of a node gathers the blocks that its ranks send to other nodes, exchanges one message with each other
// leader and scatters the received blocks. Blocks inside the node are sent directly. Cost: 2 rounds inside the nodes,
// one message of m * ranks * ranks bytes per pair of nodes. Valid on several nodes of any sizes, with ranks in any
// order; for short blocks, since it saves ranks * ranks messages per pair of nodes.
#include <vector>

#include "collectives/parts/blocks.hpp"
#include "collectives/parts/group.hpp"

namespace penstock::collectives {
namespace {

constexpr std::uint32_t kDirectTag = 0;
constexpr std::uint32_t kUpTag = 1;
constexpr std::uint32_t kAlltoallBetweenTag = 2;
constexpr std::uint32_t kAlltoallDownTag = 3;

using Pieces = std::vector<Move>;

}  // namespace

Plan alltoall_hierarchical(const Team& team, const Collective& collective) {
  const std::uint64_t bytes = block_bytes(collective);
  const std::uint64_t element_bytes = collective.item_bytes();
  const auto nodes = ranks_by_node(team);
  const auto own_node = static_cast<std::size_t>(team.node_of_rank[static_cast<std::size_t>(team.rank)]);
  const std::vector<int>& local = nodes[own_node];
  const int leader = local.front();
  const auto far_ranks = static_cast<std::uint64_t>(team.size()) - local.size();
  const std::uint64_t far_bytes = far_ranks * bytes;
  const Region all = result(team, collective);
  const Region own = contribution(team, collective);
  Sequence sequence("alltoall/hierarchical", team);
  if (bytes == 0) return finish(std::move(sequence), team, collective);

  // The blocks that this rank sends to other nodes, node by node.
  const Region up = sequence.scratch(far_bytes);
  Pieces pieces;
  std::uint64_t at_bytes = up.offset_bytes;
  for (std::size_t node = 0; node < nodes.size(); ++node)
    for (const int rank : nodes[node])
      if (node != own_node) {
        pieces.push_back({block_of(own, collective, rank), {at_bytes, bytes, Buffer::scratch}});
        at_bytes += bytes;
      }
  sequence.move(pieces, element_bytes);

  // Blocks inside the node. In place they are copied first, since receives overwrite them.
  for (const int peer : local) {
    Region from = block_of(own, collective, peer);
    if (collective.in_place && peer != team.rank) {
      const Region copy = sequence.scratch(bytes);
      sequence.copy(from, copy);
      from = copy;
    }
    if (peer != team.rank) sequence.send(from, peer, kDirectTag);
  }
  for (const int peer : local)
    if (peer != team.rank) sequence.recv(block_of(all, collective, peer), peer, kDirectTag);
  sequence.copy(block_of(own, collective, team.rank), block_of(all, collective, team.rank));

  // Rows of blocks: one per rank of this node in the order of `up`, then one per rank in the order of the messages
  // down.
  Region down = sequence.scratch(far_bytes);
  if (team.rank != leader) {
    sequence.send(up, leader, kUpTag);
    sequence.recv(down, leader, kAlltoallDownTag);
  } else {
    const std::uint64_t rows_bytes = far_bytes * local.size();
    const Region collected = sequence.scratch(rows_bytes);
    const Region dealt = sequence.scratch(rows_bytes);
    const auto row = [&](Region rows, std::size_t index) {
      return Region{rows.offset_bytes + index * far_bytes, far_bytes, Buffer::scratch};
    };
    sequence.copy(up, row(collected, 0));
    for (std::size_t i = 1; i < local.size(); ++i) sequence.recv(row(collected, i), local[i], kUpTag);
    std::vector<std::uint64_t> before_bytes;  // offset in a row of the blocks for (and from) each node
    at_bytes = 0;
    for (std::size_t node = 0; node < nodes.size(); ++node) {
      before_bytes.push_back(at_bytes);
      if (node != own_node) at_bytes += nodes[node].size() * bytes;
    }
    // Each leader begins with the node after its own: if all began with the first node, they would wait for its link.
    for (std::size_t step = 1; step < nodes.size(); ++step) {
      const std::size_t node = (own_node + step) % nodes.size();
      const std::uint64_t part_bytes = nodes[node].size() * bytes;
      const Region out = sequence.scratch(part_bytes * local.size());
      pieces.clear();
      for (std::size_t i = 0; i < local.size(); ++i)
        pieces.push_back({{row(collected, i).offset_bytes + before_bytes[node], part_bytes, Buffer::scratch},
                          {out.offset_bytes + i * part_bytes, part_bytes, Buffer::scratch}});
      sequence.move(pieces, element_bytes);
      sequence.send(out, nodes[node].front(), kAlltoallBetweenTag);
    }
    for (std::size_t step = 1; step < nodes.size(); ++step) {
      const std::size_t node = (own_node + nodes.size() - step) % nodes.size();
      const Region in = sequence.scratch(nodes[node].size() * bytes * local.size());
      sequence.recv(in, nodes[node].front(), kAlltoallBetweenTag);
      // Received blocks are ordered [sender][receiver].
      pieces.clear();
      for (std::size_t sender = 0; sender < nodes[node].size(); ++sender)
        for (std::size_t i = 0; i < local.size(); ++i)
          pieces.push_back(
              {{in.offset_bytes + (sender * local.size() + i) * bytes, bytes, Buffer::scratch},
               {row(dealt, i).offset_bytes + before_bytes[node] + sender * bytes, bytes, Buffer::scratch}});
      sequence.move(pieces, element_bytes);
    }
    for (std::size_t i = 1; i < local.size(); ++i) sequence.send(row(dealt, i), local[i], kAlltoallDownTag);
    down = row(dealt, 0);
  }
  pieces.clear();
  at_bytes = down.offset_bytes;
  for (std::size_t node = 0; node < nodes.size(); ++node)
    for (const int rank : nodes[node])
      if (node != own_node) {
        pieces.push_back({{at_bytes, bytes, Buffer::scratch}, block_of(all, collective, rank)});
        at_bytes += bytes;
      }
  sequence.move(pieces, element_bytes);
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
