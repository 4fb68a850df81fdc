// All show their contributions and combine the parts for them, in the order of the ranks. Valid where all ranks
// share memory and what they show is small.
#include <utility>

#include "collectives/parts/shown.hpp"

namespace penstock::collectives {

Plan reduce_scatter_block_shared(const Team& team, const Collective& what) {
  Shown shown("reduce_scatter_block/shared", team, what);
  shown.to_all(contribution(team, what));
  shown.combine(team.size(), static_cast<std::uint64_t>(team.rank) * block_bytes(what), result(team, what));
  return std::move(shown).finish();
}

}  // namespace penstock::collectives
