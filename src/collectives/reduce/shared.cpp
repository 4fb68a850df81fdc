// Each rank publishes its contribution, and the root combines them in rank order.
// Valid if all ranks are on one node and the published data is small.
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
