// All raise a flag for all. Valid where all ranks share memory and what they show is small.
#include <utility>

#include "collectives/parts/shown.hpp"

namespace penstock::collectives {

Plan barrier_shared(const Team& team, const Collective& what) {
  Shown shown("barrier/shared", team, what);
  shown.to_all({});
  return std::move(shown).finish();
}

}  // namespace penstock::collectives
