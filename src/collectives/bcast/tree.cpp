// Broadcast along a k-nomial tree whose edges are tasks that any core of the node may take; split between the cores of
// communication and those of the application by level (paper 000, section 3).
// Cost: n - 1 copies in ceil(log_k n) levels. Valid on one node.
#include <array>

#include "collectives/parts/node_tasks.hpp"

namespace penstock::collectives {

Plan bcast_tree(const Team& team, const Collective& what) {
  const Region whole{0, block_bytes(what), Buffer::output};
  const Group group = from_root(team, what);
  const Segments segments = task_segments(what, kTreeSegmentBytes, team.size() - 1);
  Sequence sequence("bcast/tree", team);
  sequence.tree_levels(levels(team.size(), what.radix));
  std::vector<GrowingTasks> tasks(segments.count(), GrowingTasks(sequence, team.size()));
  for (const Edge& edge : edges(team.size(), what.radix))
    for (std::uint32_t s = 0; s < segments.count(); ++s) {
      const Region segment = segments.of(whole, s);
      tasks[s].add(edge.level, s, edge.parent, edge.child, std::array{RankRegion{segment, group[edge.parent]}},
                   {segment, group[edge.child]});
    }
  sequence.share();
  return finish(std::move(sequence), team, what);
}

}  // namespace penstock::collectives
