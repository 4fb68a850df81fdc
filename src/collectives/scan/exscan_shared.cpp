// All show their contributions to higher ranks and combine those of the lower ones, in order. Valid where all ranks
// share memory and what they show is small.
#include <utility>

#include "collectives/parts/published.hpp"

namespace penstock::collectives {

Plan exscan_shared(const Team& team, const Collective& collective) {
  Published published("exscan/shared", team, collective);
  published.to_higher(contribution(team, collective));
  published.combine(team.rank, 0, result(team, collective));
  return std::move(published).finish();
}

}  // namespace penstock::collectives
