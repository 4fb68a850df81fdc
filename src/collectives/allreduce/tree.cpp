// Reduction and broadcast along one k-nomial tree. Its edges are tasks that any core of the node may run. The split
// places the wide levels of both halves on application cores (split-tree paper).
// Cost: 2 * (n - 1) tasks in 2 * ceil(log_k n) levels. Valid on one node.
#include <array>
#include <ranges>

#include "collectives/parts/node_tasks.hpp"

namespace penstock::collectives {

Plan allreduce_tree(const Team& team, const Collective& collective) {
  const std::vector<Edge> tree = edges(team.size(), collective.radix);
  const Region sum = result(team, collective);
  const Segments segments = task_segments(collective, kCopyTaskBytes, 2 * (team.size() - 1));
  Sequence sequence("allreduce/tree", team);
  sequence.tree_levels(levels(team.size(), collective.radix));
  std::vector<Region> value(static_cast<std::size_t>(team.size()), contribution(team, collective));
  std::vector<GrowingTasks> tasks(segments.count(), GrowingTasks(sequence, team.size()));
  for (const Edge& edge : tree | std::views::reverse) {
    const auto parent = static_cast<std::size_t>(edge.parent);
    for (std::uint32_t s = 0; s < segments.count(); ++s)
      tasks[s].add(edge.level, s, edge.child, edge.parent,
                   std::array{RankRegion{segments.of(value[parent], s), edge.parent},
                              RankRegion{segments.of(value[static_cast<std::size_t>(edge.child)], s), edge.child}},
                   {segments.of(sum, s), edge.parent});
    value[parent] = sum;
  }
  for (const Edge& edge : tree)
    for (std::uint32_t s = 0; s < segments.count(); ++s)
      tasks[s].add(edge.level, s, edge.parent, edge.child, std::array{RankRegion{segments.of(sum, s), edge.parent}},
                   {segments.of(sum, s), edge.child});
  sequence.publish_tasks();
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
