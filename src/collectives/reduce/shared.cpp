// All show their contributions, and the root combines them in the order of the ranks. Valid where all ranks share
// memory and what they show is small.
#include <utility>

#include "collectives/parts/published.hpp"

namespace penstock::collectives {

Plan reduce_shared(const Team& team, const Collective& collective) {
  Published published("reduce/shared", team, collective);
  published.to_root(contribution(team, collective));
  published.combine(team.size(), 0, result(team, collective));
  return std::move(published).finish();
}

}  // namespace penstock::collectives
