// Combined inside each node, then among the leaders by recursive doubling, then spread inside each node.
// Cost: log2 k rounds of m bytes between k nodes, 2 more unless k is a power of two. Valid for every team and size; for
// short messages.
#include "collectives/leaders.hpp"

namespace penstock::collectives {

Plan allreduce_leader_doubling(const Team& team, const Collective& what) {
  return allreduce_by_leaders(team, what, "leader_doubling", doubling_allreduce, 1);
}

}  // namespace penstock::collectives
