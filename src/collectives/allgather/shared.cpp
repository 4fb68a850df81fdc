// All show their blocks and read those of the others. Valid where all ranks share memory and what they show is
// small.
#include <utility>

#include "collectives/parts/shown.hpp"

namespace penstock::collectives {

Plan allgather_shared(const Team& team, const Collective& what) {
  Shown shown("allgather/shared", team, what);
  shown.to_all(contribution(team, what));
  for (int rank = 0; rank < team.size(); ++rank) shown.take(rank, 0, block_of(result(team, what), what, rank));
  return std::move(shown).finish();
}

}  // namespace penstock::collectives
