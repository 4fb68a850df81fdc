// All show the blocks that they have for all, and read those for them. Valid where all ranks share memory and what
// they show is small.
#include <utility>

#include "collectives/shown.hpp"

namespace penstock::collectives {

Plan alltoall_shared(const Team& team, const Collective& what) {
  Shown shown("alltoall/shared", team, what);
  const std::uint64_t own = static_cast<std::uint64_t>(team.rank) * block_bytes(what);
  shown.show(contribution(team, what));
  shown.exchange_with_all();
  for (int rank = 0; rank < team.size(); ++rank) shown.take(rank, own, block_of(result(team, what), what, rank));
  return std::move(shown).finish();
}

}  // namespace penstock::collectives
