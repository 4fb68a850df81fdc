// The root deals its data out to the nodes' leaders, who pass the parts around a ring; each node spreads what arrives.
// Cost: log2 k + k - 1 rounds between k nodes, about 2 * m bytes sent by the root and m by the others. Valid for every
// team and size; for messages of medium length on many nodes.
#include "collectives/parts/leaders.hpp"

namespace penstock::collectives {

Plan bcast_leader_scatter(const Team& team, const Collective& what) {
  const Region data = result(team, what);
  Sequence sequence("bcast/leader_scatter", team);
  Leaders leaders(sequence, team, what, what.root, 1, 1);
  if (leaders.has_slot(0))
    scatter_allgather(sequence, leaders.group(0),
                      {.own = data,
                       .target = data,
                       .elements = what.count,
                       .element_bytes = what.item_bytes(),
                       .segment_bytes = what.segment_bytes});
  leaders.spread(data);
  return finish(std::move(sequence), team, what);
}

}  // namespace penstock::collectives
