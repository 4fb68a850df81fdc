// Combined inside each node, then around a ring of the nodes' leaders, then spread inside each node.
// Cost: 2 * m * (k - 1) / k bytes sent per node of k, the least possible however many ranks it has. Valid for every
// team and size; for long messages.
#include "collectives/leaders.hpp"

namespace penstock::collectives {

Plan allreduce_leader_ring(const Team& team, const Collective& what) {
  return allreduce_by_leaders(team, what, "leader_ring", ring_allreduce, 1);
}

}  // namespace penstock::collectives
