// The root shows its buffer, and the others read it. Valid where all ranks share memory and what they show is
// small.
#include <utility>

#include "collectives/parts/shown.hpp"

namespace penstock::collectives {

Plan bcast_shared(const Team& team, const Collective& what) {
  Shown shown("bcast/shared", team, what);
  shown.from_root(result(team, what));
  shown.take(what.root, 0, result(team, what));
  return std::move(shown).finish();
}

}  // namespace penstock::collectives
