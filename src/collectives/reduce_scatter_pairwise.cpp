// See reduce_parts_pairwise.cpp.
#include "collectives/blocks.hpp"

namespace penstock::collectives {

Plan reduce_scatter_pairwise(const Team& team, const Collective& what) {
  return reduce_parts_pairwise("reduce_scatter/pairwise", team, what);
}

}  // namespace penstock::collectives
