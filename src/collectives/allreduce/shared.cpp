// Each rank publishes its contribution and combines all of them in rank order, so all ranks get the same bits.
// Valid if all ranks are on one node and the published data is small.
#include <utility>

#include "collectives/parts/published.hpp"

namespace penstock::collectives {

Plan allreduce_shared(const Team& team, const Collective& collective) {
  Published published("allreduce/shared", team, collective);
  published.to_all(contribution(team, collective));
  published.combine(team.size(), 0, result(team, collective));
  return std::move(published).finish();
}

}  // namespace penstock::collectives
