// Gather along a binomial tree: each inner rank receives the blocks of its subtree behind its own block and sends all
// of them on in one message. The tree follows the nodes; the root reorders the blocks. Cost: ceil(log2 n) rounds, at
// most m * n / 2 bytes sent by a rank. Valid for every team and size; for short blocks.
#include "collectives/parts/stage.hpp"

namespace penstock::collectives {

Plan gather_binomial(const Team& team, const Collective& collective) {
  const Group group = by_node(team, collective.root);
  const Tree tree = binomial(group);
  const std::uint64_t bytes = block_bytes(collective);
  const Region own = contribution(team, collective);
  Sequence sequence("gather/binomial", team);
  sequence.tree_levels(tree.levels);
  if (tree.parent < 0) {
    const Region all = result(team, collective);
    sequence.copy(own, block_of(all, collective, team.rank));
    for (std::size_t i = tree.children.size(); i-- > 0;) {
      const Tree::Edge& child = tree.children[i];
      sequence.at(child.level);
      const std::vector<Run> runs = runs_of(group, child.first, child.count);
      if (runs.size() == 1) {
        sequence.recv(blocks_of(all, collective, runs[0]), child.rank, 0);
        continue;
      }
      Region landing = sequence.scratch(static_cast<std::uint64_t>(child.count) * bytes);
      sequence.recv(landing, child.rank, 0);
      for (const Run& run : runs) {
        const Region to = blocks_of(all, collective, run);
        sequence.copy({landing.offset_bytes, to.size_bytes, landing.buffer}, to);
        landing.offset_bytes += to.size_bytes;
      }
    }
  } else if (tree.children.empty()) {
    sequence.at(tree.parent_level).send(own, tree.parent, 0);
  } else {
    const Region subtree = sequence.scratch(static_cast<std::uint64_t>(tree.count) * bytes);
    sequence.at(tree.parent_level).copy(own, {subtree.offset_bytes, bytes, subtree.buffer});
    for (std::size_t i = tree.children.size(); i-- > 0;) {
      const Tree::Edge& child = tree.children[i];
      const auto before = static_cast<std::uint64_t>(child.first - group.self);
      sequence.at(child.level)
          .recv(
              {subtree.offset_bytes + before * bytes, static_cast<std::uint64_t>(child.count) * bytes, subtree.buffer},
              child.rank, 0);
    }
    sequence.at(tree.parent_level).send(subtree, tree.parent, 0);
  }
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
