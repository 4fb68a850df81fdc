// All raise a flag for all. Valid where all ranks share memory and what they show is small.
#include <utility>

#include "collectives/parts/published.hpp"

namespace penstock::collectives {

Plan barrier_shared(const Team& team, const Collective& collective) {
  Published published("barrier/shared", team, collective);
  published.to_all({});
  return std::move(published).finish();
}

}  // namespace penstock::collectives
