// All show their contributions and combine all of them, in the order of the ranks: every rank has the same bits.
// Valid where all ranks share memory and what they show is small.
#include <utility>

#include "collectives/parts/published.hpp"

namespace penstock::collectives {

Plan allreduce_shared(const Team& team, const Collective& collective) {
  Published published("allreduce/shared", team, collective);
  published.to_all(contribution(team, collective));
  published.combine(team.size(), 0, result(team, collective));
  return std::move(published).finish();
}

}  // namespace penstock::collectives
