// As reduce_cells, but each part's sum is shown to all ranks.
// Cost: 4m(n-1)/n bytes copied per rank. Valid on one node.
#include "collectives/cells.hpp"

namespace penstock::collectives {

Plan allreduce_cells(const Team& team, const Collective& what) {
  return reduce_through_cells(team, what, "allreduce/cells");
}

}  // namespace penstock::collectives
