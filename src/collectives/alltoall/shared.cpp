// All show the blocks that they have for all, and read those for them. Valid where all ranks share memory and what
// they show is small.
#include <utility>

#include "collectives/parts/shown.hpp"

namespace penstock::collectives {

Plan alltoall_shared(const Team& team, const Collective& what) {
  Shown shown("alltoall/shared", team, what);
  const std::uint64_t own_bytes = static_cast<std::uint64_t>(team.rank) * block_bytes(what);
  shown.to_all(contribution(team, what));
  for (int rank = 0; rank < team.size(); ++rank) shown.take(rank, own_bytes, block_of(result(team, what), what, rank));
  return std::move(shown).finish();
}

}  // namespace penstock::collectives
