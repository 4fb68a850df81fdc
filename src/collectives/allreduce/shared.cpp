// All show their contributions and combine all of them, in the order of the ranks: every rank has the same bits.
// Valid where all ranks share memory and what they show is small.
#include <utility>

#include "collectives/parts/shown.hpp"

namespace penstock::collectives {

Plan allreduce_shared(const Team& team, const Collective& what) {
  Shown shown("allreduce/shared", team, what);
  shown.to_all(contribution(team, what));
  shown.combine(team.size(), 0, result(team, what));
  return std::move(shown).finish();
}

}  // namespace penstock::collectives
