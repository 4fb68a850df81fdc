// The root publishes its buffer, and the others read it.
// Valid if all ranks are on one node and the published data is small.
#include <utility>

#include "collectives/parts/published.hpp"

namespace penstock::collectives {

Plan bcast_shared(const Team& team, const Collective& collective) {
  Published published("bcast/shared", team, collective);
  published.from_root(result(team, collective));
  published.take(collective.root, 0, result(team, collective));
  return std::move(published).finish();
}

}  // namespace penstock::collectives
