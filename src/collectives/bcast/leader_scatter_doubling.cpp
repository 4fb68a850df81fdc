// The root scatters its data to the leaders of the nodes, which allgather the parts by recursive doubling and spread
// them inside their nodes. Cost: 2 * log2 k rounds between k nodes, about 2 * m bytes sent by the root and m by the
// others. Valid for every team and size; for messages of medium length on many nodes.
#include "collectives/parts/leaders.hpp"

namespace penstock::collectives {

Plan bcast_leader_scatter_doubling(const Team& team, const Collective& collective) {
  const Region data = result(team, collective);
  Sequence sequence("bcast/leader_scatter_doubling", team);
  Leaders leaders(sequence, team, collective, collective.root, 1, 1);
  if (leaders.has_slot(0))
    scatter_doubling(sequence, leaders.group(0),
                     {.own = data,
                      .target = data,
                      .elements = collective.count,
                      .element_bytes = collective.item_bytes(),
                      .segment_bytes = collective.segment_bytes});
  leaders.spread(data);
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
