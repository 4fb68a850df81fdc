// Combined inside each node, then among the leaders by recursive halving and doubling, then spread inside each node.
// Cost: 2 * log2 k rounds between k nodes, 2 * m * (k - 1) / k bytes sent per node; up to 2 rounds of m more where k is
// no power of two. Valid for every team and size; for messages of medium length.
#include "collectives/leaders.hpp"

namespace penstock::collectives {

Plan allreduce_leader_rabenseifner(const Team& team, const Collective& what) {
  return allreduce_by_leaders(team, what, "leader_rabenseifner", halving_allreduce, 1);
}

}  // namespace penstock::collectives
