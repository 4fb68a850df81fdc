// The root shows all blocks, and each rank reads its own. Valid where all ranks share memory and what they show is
// small.
#include <utility>

#include "collectives/shown.hpp"

namespace penstock::collectives {

Plan scatter_shared(const Team& team, const Collective& what) {
  Shown shown("scatter/shared", team, what);
  if (team.rank == what.root) {
    shown.show(contribution(team, what));
    for (int i = 1; i < team.size(); ++i) shown.expose((what.root + i) % team.size());
  } else {
    shown.await(what.root);
  }
  shown.take(what.root, static_cast<std::uint64_t>(team.rank) * block_bytes(what), result(team, what));
  return std::move(shown).finish();
}

}  // namespace penstock::collectives
