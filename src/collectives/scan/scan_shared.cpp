// Each rank publishes its contribution to the higher ranks, and combines those of the lower ranks and its own in order.
// Valid if all ranks are on one node and the published data is small.
#include <utility>

#include "collectives/parts/published.hpp"

namespace penstock::collectives {

Plan scan_shared(const Team& team, const Collective& collective) {
  Published published("scan/shared", team, collective);
  published.to_higher(contribution(team, collective));
  published.combine(team.rank + 1, 0, result(team, collective));
  return std::move(published).finish();
}

}  // namespace penstock::collectives
