// The buffer is cut into n parts. In n - 1 rounds each part travels around the ring and is combined on its way (reduce-
// scatter), in n - 1 more rounds the results travel around (allgather). Ranks of a node are neighbours in the ring.
// Cost: 2 * (n - 1) rounds, 2 * m * (n - 1) / n bytes sent, the least possible. Valid for every team and size (parts
// may be empty); for long messages. Parts are cut into segments, which are combined while the next ones arrive.
#include "collectives/exchange.hpp"

namespace penstock::collectives {

Plan allreduce_ring(const Team& team, const Collective& what) {
  Sequence sequence("allreduce/ring", team);
  ring_allreduce(sequence, by_node(team, 0), whole_exchange(team, what));
  return finish(std::move(sequence), team, what);
}

}  // namespace penstock::collectives
