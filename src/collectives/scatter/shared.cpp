// The root shows all blocks, and each rank reads its own. Valid where all ranks share memory and what they show is
// small.
#include <utility>

#include "collectives/parts/shown.hpp"

namespace penstock::collectives {

Plan scatter_shared(const Team& team, const Collective& what) {
  Shown shown("scatter/shared", team, what);
  shown.from_root(contribution(team, what));
  shown.take(what.root, static_cast<std::uint64_t>(team.rank) * block_bytes(what), result(team, what));
  return std::move(shown).finish();
}

}  // namespace penstock::collectives
