// Up to four ranks of each node lead a part of the data each: it is combined inside the nodes, goes around a ring of
// the ranks that lead it, and is spread inside the nodes (Bayatpour et al. 2017).
// Cost: 2 * m * (k - 1) / k bytes sent per node of k, by several cores. Valid for every team and size; for long
// messages where one core cannot fill the network.
#include "collectives/leaders.hpp"

namespace penstock::collectives {

Plan allreduce_multi_leader(const Team& team, const Collective& what) {
  return allreduce_by_leaders(team, what, "multi_leader", ring_allreduce, 4);
}

}  // namespace penstock::collectives
