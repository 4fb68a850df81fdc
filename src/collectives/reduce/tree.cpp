// Reduction along a k-nomial tree. Its edges are tasks that any core of the node may run. The split assigns levels to
// communication cores and application cores (split-tree paper, section 3).
// Cost: n - 1 reductions in ceil(log_k n) levels. Valid on one node.
#include <algorithm>
#include <array>
#include <ranges>

#include "collectives/parts/node_tasks.hpp"

namespace penstock::collectives {

Plan reduce_tree(const Team& team, const Collective& collective) {
  const std::uint64_t bytes = block_bytes(collective);
  const Group group = from_root(team, collective);
  const std::vector<Edge> tree = edges(team.size(), collective.radix);
  const Segments segments = task_segments(collective, kCopyTaskBytes, team.size() - 1);
  Sequence sequence("reduce/tree", team);
  sequence.tree_levels(levels(team.size(), collective.radix));
  // The region of the sum over a rank's subtree; the input until the first child has been added.
  std::vector<Region> value(group.ranks.size(), Region{0, bytes, Buffer::input});
  const auto sum_of = [&](int index) { return Region{0, bytes, index == 0 ? Buffer::output : Buffer::scratch}; };
  if (std::ranges::any_of(tree, [&](const Edge& edge) { return edge.parent > 0 && group[edge.parent] == team.rank; }))
    sequence.scratch(bytes);
  std::vector<GrowingTasks> tasks(segments.count(), GrowingTasks(sequence, team.size()));
  for (const Edge& edge : tree | std::views::reverse) {
    const auto parent = static_cast<std::size_t>(edge.parent);
    const auto child = static_cast<std::size_t>(edge.child);
    for (std::uint32_t s = 0; s < segments.count(); ++s)
      tasks[s].add(edge.level, s, edge.child, edge.parent,
                   std::array{RankRegion{segments.of(value[parent], s), group[edge.parent]},
                              RankRegion{segments.of(value[child], s), group[edge.child]}},
                   {segments.of(sum_of(edge.parent), s), group[edge.parent]});
    value[parent] = sum_of(edge.parent);
  }
  sequence.publish_tasks();
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
