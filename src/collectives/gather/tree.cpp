// Gather along a k-nomial tree. Its edges are tasks that any core of the node may run; the split assigns levels to
// communication cores and application cores (split-tree paper, the variant with growing buffers). A rank's own block
// goes to its parent from the input, those of its subtree from the memory in which they were gathered: no copies inside
// a rank. Cost: m * n / 2 * log_k(n) bytes at most, in ceil(log_k n) levels. Valid on one node.
#include <array>
#include <ranges>

#include "collectives/parts/node_tasks.hpp"

namespace penstock::collectives {

Plan gather_tree(const Team& team, const Collective& collective) {
  const std::uint64_t bytes = block_bytes(collective);
  const Group group = from_root(team, collective);
  const Region own{0, bytes, Buffer::input};
  const Region all{0, bytes * static_cast<std::uint64_t>(team.size()), Buffer::output};
  Sequence sequence("gather/tree", team);
  sequence.tree_levels(levels(team.size(), collective.radix));
  GrowingTasks tasks(sequence, team.size());
  for (const Edge& edge : edges(team.size(), collective.radix) | std::views::reverse) {
    // The scratch memory of index v has the blocks of the indices [v + 1, v + count).
    Region gathered{0, static_cast<std::uint64_t>(edge.count - 1) * bytes, Buffer::scratch};
    if (group[edge.child] == team.rank && edge.count > 1) sequence.scratch(gathered.size_bytes);
    const auto move = [&](Region from, Region to) {
      tasks.add(edge.level, 0, edge.child, edge.parent, std::array{RankRegion{from, group[edge.child]}},
                {to, group[edge.parent]});
    };
    if (edge.parent == 0) {
      move(own, block_of(all, collective, group[edge.child]));
      for (const Run& run : runs_of(group, edge.child + 1, edge.count - 1)) {
        const Region to = blocks_of(all, collective, run);
        move({gathered.offset_bytes, to.size_bytes, Buffer::scratch}, to);
        gathered.offset_bytes += to.size_bytes;
      }
    } else {
      const std::uint64_t before = static_cast<std::uint64_t>(edge.child - edge.parent - 1) * bytes;
      move(own, {before, bytes, Buffer::scratch});
      move(gathered, {before + bytes, gathered.size_bytes, Buffer::scratch});
    }
  }
  if (bytes > 0)
    sequence.task({}, std::array{RankRegion{own, collective.root}},
                  std::array{RankRegion{block_of(all, collective, collective.root), collective.root}});
  sequence.publish_tasks();
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
