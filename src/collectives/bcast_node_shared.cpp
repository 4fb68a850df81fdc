// Broadcast between the leaders of the nodes along a binomial tree; inside each node the copies are tasks that any of
// its cores may take, so that one core of communication serves all ranks of a node. Cost: ceil(log2 nodes) rounds
// between nodes, one copy per rank inside. Valid on several nodes with single copy.
#include "collectives/node_tasks.hpp"

namespace penstock::collectives {

namespace {
constexpr std::uint64_t kSegmentBytes = 256 << 10;
}

Plan bcast_node_shared(const Team& team, const Collective& what) {
  const Group between = leaders(team, what.root);
  const Group node = node_group(team, what.root);
  const Segments segments(what, kSegmentBytes, kMaxNodeSegments);
  const Region data = result(team, what);
  Sequence sequence("bcast/node_shared", team);
  for (std::uint32_t s = 0; s < segments.count(); ++s) {
    const Region segment = segments.of(data, s);
    if (between.contains_self()) bcast_stage(sequence, binomial(between), segment, s, {});
    spread_on_node(sequence, node, what, segment, s);
  }
  return finish(std::move(sequence), team, what);
}

}  // namespace penstock::collectives
