// All show their blocks, and the root reads them. Valid where all ranks share memory and what they show is small.
#include <utility>

#include "collectives/parts/published.hpp"

namespace penstock::collectives {

Plan gather_shared(const Team& team, const Collective& collective) {
  Published published("gather/shared", team, collective);
  published.to_root(contribution(team, collective));
  if (team.rank == collective.root)
    for (int rank = 0; rank < team.size(); ++rank)
      published.take(rank, 0, block_of(result(team, collective), collective, rank));
  return std::move(published).finish();
}

}  // namespace penstock::collectives
