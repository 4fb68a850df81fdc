// Broadcast along a k-nomial tree. Its edges are tasks that any core of the node may run. The split assigns levels to
// communication cores and application cores (split-tree paper, section 3).
// Cost: n - 1 copies in ceil(log_k n) levels. Valid on one node.
#include <array>

#include "collectives/parts/node_tasks.hpp"

namespace penstock::collectives {

Plan bcast_tree(const Team& team, const Collective& collective) {
  const Region whole{0, block_bytes(collective), Buffer::output};
  const Group group = from_root(team, collective);
  const Segments segments = task_segments(collective, kCopyTaskBytes, team.size() - 1);
  Sequence sequence("bcast/tree", team);
  sequence.tree_levels(levels(team.size(), collective.radix));
  std::vector<GrowingTasks> tasks(segments.count(), GrowingTasks(sequence, team.size()));
  for (const Edge& edge : edges(team.size(), collective.radix))
    for (std::uint32_t s = 0; s < segments.count(); ++s) {
      const Region segment = segments.of(whole, s);
      tasks[s].add(edge.level, s, edge.parent, edge.child, std::array{RankRegion{segment, group[edge.parent]}},
                   {segment, group[edge.child]});
    }
  sequence.publish_tasks();
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
