// The mirror of gather_binomial: each inner rank receives the blocks of its subtree in one message and sends each child
// the blocks of the child's subtree. The tree follows the nodes; if necessary, the root reorders the blocks. Cost:
// ceil(log2 n) rounds, m * (n - 1) bytes sent by the root. Valid for every team and size; for short blocks.
#include "collectives/parts/stage.hpp"

namespace penstock::collectives {

Plan scatter_binomial(const Team& team, const Collective& collective) {
  const Group group = by_node(team, collective.root);
  const Tree tree = binomial(group);
  const std::uint64_t bytes = block_bytes(collective);
  const Region own = result(team, collective);
  Sequence sequence("scatter/binomial", team);
  sequence.tree_levels(tree.levels);
  if (tree.parent < 0) {
    const Region all = contribution(team, collective);
    for (const Tree::Edge& child : tree.children) {
      sequence.at(child.level);
      const std::vector<Run> runs = runs_of(group, child.first, child.count);
      if (runs.size() == 1) {
        sequence.send(blocks_of(all, collective, runs[0]), child.rank, 0);
        continue;
      }
      const Region packed = sequence.scratch(static_cast<std::uint64_t>(child.count) * bytes);
      Region rest = packed;
      for (const Run& run : runs) {
        const Region from = blocks_of(all, collective, run);
        sequence.copy(from, {rest.offset_bytes, from.size_bytes, rest.buffer});
        rest.offset_bytes += from.size_bytes;
      }
      sequence.send(packed, child.rank, 0);
    }
    if (own.size_bytes > 0) sequence.copy(block_of(all, collective, team.rank), own);
  } else if (tree.children.empty()) {
    sequence.at(tree.parent_level).recv(own, tree.parent, 0);
  } else {
    const Region subtree = sequence.scratch(static_cast<std::uint64_t>(tree.count) * bytes);
    sequence.at(tree.parent_level).recv(subtree, tree.parent, 0);
    for (const Tree::Edge& child : tree.children) {
      const auto before = static_cast<std::uint64_t>(child.first - group.self);
      sequence.at(child.level)
          .send(
              {subtree.offset_bytes + before * bytes, static_cast<std::uint64_t>(child.count) * bytes, subtree.buffer},
              child.rank, 0);
    }
    sequence.at(tree.parent_level).copy({subtree.offset_bytes, bytes, subtree.buffer}, own);
  }
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
