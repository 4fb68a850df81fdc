// All show their contributions to higher ranks and combine those of the lower ones, in order. Valid where all ranks
// share memory and what they show is small.
#include <utility>

#include "collectives/parts/shown.hpp"

namespace penstock::collectives {

Plan exscan_shared(const Team& team, const Collective& what) {
  Shown shown("exscan/shared", team, what);
  shown.to_higher(contribution(team, what));
  shown.combine(team.rank, 0, result(team, what));
  return std::move(shown).finish();
}

}  // namespace penstock::collectives
