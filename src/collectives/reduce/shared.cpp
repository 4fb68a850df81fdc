// All show their contributions, and the root combines them in the order of the ranks. Valid where all ranks share
// memory and what they show is small.
#include <utility>

#include "collectives/parts/shown.hpp"

namespace penstock::collectives {

Plan reduce_shared(const Team& team, const Collective& what) {
  Shown shown("reduce/shared", team, what);
  shown.to_root(contribution(team, what));
  shown.combine(team.size(), 0, result(team, what));
  return std::move(shown).finish();
}

}  // namespace penstock::collectives
