// The mirror of gather_tree: a rank's own block goes to its output, the blocks of its subtree to memory from which its
// children read them.
// Cost: m * n / 2 * log_k(n) bytes at most, in ceil(log_k n) levels. Valid on one node.
#include <array>

#include "collectives/parts/node_tasks.hpp"

namespace penstock::collectives {

Plan scatter_tree(const Team& team, const Collective& collective) {
  const std::uint64_t bytes = block_bytes(collective);
  const Group group = from_root(team, collective);
  const Region own{0, bytes, Buffer::output};
  const Region all{0, bytes * static_cast<std::uint64_t>(team.size()), Buffer::input};
  Sequence sequence("scatter/tree", team);
  sequence.tree_levels(levels(team.size(), collective.radix));
  GrowingTasks tasks(sequence, team.size());
  for (const Edge& edge : edges(team.size(), collective.radix)) {
    Region passed_on{0, static_cast<std::uint64_t>(edge.count - 1) * bytes, Buffer::scratch};
    if (group[edge.child] == team.rank && edge.count > 1) sequence.scratch(passed_on.size_bytes);
    const auto move = [&](Region from, Region to) {
      tasks.add(edge.level, 0, edge.parent, edge.child, std::array{RankRegion{from, group[edge.parent]}},
                {to, group[edge.child]});
    };
    if (edge.parent == 0) {
      move(block_of(all, collective, group[edge.child]), own);
      for (const Run& run : runs_of(group, edge.child + 1, edge.count - 1)) {
        const Region from = blocks_of(all, collective, run);
        move(from, {passed_on.offset_bytes, from.size_bytes, Buffer::scratch});
        passed_on.offset_bytes += from.size_bytes;
      }
    } else {
      const std::uint64_t before = static_cast<std::uint64_t>(edge.child - edge.parent - 1) * bytes;
      move({before, bytes, Buffer::scratch}, own);
      move({before + bytes, passed_on.size_bytes, Buffer::scratch}, passed_on);
    }
  }
  if (bytes > 0)
    sequence.task({}, std::array{RankRegion{block_of(all, collective, collective.root), collective.root}},
                  std::array{RankRegion{own, collective.root}});
  sequence.publish_tasks();
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
