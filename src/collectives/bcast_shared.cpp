// The root shows its buffer, and the others read it. Valid where all ranks share memory and what they show is
// small.
#include <utility>

#include "collectives/shown.hpp"

namespace penstock::collectives {

Plan bcast_shared(const Team& team, const Collective& what) {
  Shown shown("bcast/shared", team, what);
  const Region data = result(team, what);
  if (team.rank == what.root) {
    shown.show(data);
    for (int i = 1; i < team.size(); ++i) shown.expose((what.root + i) % team.size());
  } else {
    shown.await(what.root);
    shown.take(what.root, 0, data);
  }
  return std::move(shown).finish();
}

}  // namespace penstock::collectives
