// All pairs at distance 1, 2, 4, … exchange and combine what they have. Ranks beyond the largest power of two give
// their contribution to a neighbour first and get the result from it at the end (Thakur, Rabenseifner and Gropp 2005).
// Cost: floor(log2 n) rounds of m bytes, 2 more unless n is a power of two. Valid for every team and size; for short
// messages. Partners at short distances are on the same node.
#include "collectives/exchange.hpp"

namespace penstock::collectives {

Plan allreduce_recursive_doubling(const Team& team, const Collective& what) {
  Sequence sequence("allreduce/recursive_doubling", team);
  doubling_allreduce(sequence, by_node(team, 0), whole_exchange(team, what));
  return finish(std::move(sequence), team, what);
}

}  // namespace penstock::collectives
