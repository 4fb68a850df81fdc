// Each rank publishes its contribution, and combines its own part of all of them in rank order.
// Valid if all ranks are on one node and the published data is small.
#include <utility>

#include "collectives/parts/published.hpp"

namespace penstock::collectives {

Plan reduce_scatter_block_shared(const Team& team, const Collective& collective) {
  Published published("reduce_scatter_block/shared", team, collective);
  published.to_all(contribution(team, collective));
  published.combine(team.size(), static_cast<std::uint64_t>(team.rank) * block_bytes(collective),
                    result(team, collective));
  return std::move(published).finish();
}

}  // namespace penstock::collectives
