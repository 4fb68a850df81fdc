// All show their blocks, and the root reads them. Valid where all ranks share memory and what they show is small.
#include <utility>

#include "collectives/parts/shown.hpp"

namespace penstock::collectives {

Plan gather_shared(const Team& team, const Collective& what) {
  Shown shown("gather/shared", team, what);
  shown.to_root(contribution(team, what));
  if (team.rank == what.root)
    for (int rank = 0; rank < team.size(); ++rank) shown.take(rank, 0, block_of(result(team, what), what, rank));
  return std::move(shown).finish();
}

}  // namespace penstock::collectives
