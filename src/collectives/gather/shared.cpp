// Each rank publishes its block, and the root reads all of them.
// Valid if all ranks are on one node and the published data is small.
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
