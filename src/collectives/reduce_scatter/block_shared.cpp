// All show their contributions and combine the parts for them, in the order of the ranks. Valid where all ranks
// share memory and what they show is small.
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
