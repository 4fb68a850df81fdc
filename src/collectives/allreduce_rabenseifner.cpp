// Recursive halving: partners at distance n/2, n/4, … exchange and combine halves of what they hold, so that each ends
// with the sum of one part; recursive doubling collects the parts (Thakur, Rabenseifner and Gropp 2005).
// Cost: 2 * log2 n rounds, 2 * m * (n - 1) / n bytes sent; where n is no power of two, up to 2 rounds of m more. Valid
// for every team and size; for messages of medium length. Partners of the long last rounds are on the same node.
#include "collectives/exchange.hpp"

namespace penstock::collectives {

Plan allreduce_rabenseifner(const Team& team, const Collective& what) {
  Sequence sequence("allreduce/rabenseifner", team);
  halving_allreduce(sequence, by_node(team, 0), whole_exchange(team, what));
  return finish(std::move(sequence), team, what);
}

}  // namespace penstock::collectives
