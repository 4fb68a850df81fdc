// Each rank publishes a flag and waits for the flags of all others. Valid if all ranks are on one node.
#include <utility>

#include "collectives/parts/published.hpp"

namespace penstock::collectives {

Plan barrier_shared(const Team& team, const Collective& collective) {
  Published published("barrier/shared", team, collective);
  published.to_all({});
  return std::move(published).finish();
}

}  // namespace penstock::collectives
