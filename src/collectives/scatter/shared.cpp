// The root publishes all blocks, and each rank reads its own.
// Valid if all ranks are on one node and the published data is small.
#include <utility>

#include "collectives/parts/published.hpp"

namespace penstock::collectives {

Plan scatter_shared(const Team& team, const Collective& collective) {
  Published published("scatter/shared", team, collective);
  published.from_root(contribution(team, collective));
  published.take(collective.root, static_cast<std::uint64_t>(team.rank) * block_bytes(collective),
                 result(team, collective));
  return std::move(published).finish();
}

}  // namespace penstock::collectives
