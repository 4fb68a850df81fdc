// See reduce_parts_hierarchical.cpp.
#include "collectives/blocks.hpp"

namespace penstock::collectives {

Plan reduce_scatter_block_hierarchical(const Team& team, const Collective& what) {
  return reduce_parts_hierarchical("reduce_scatter_block/hierarchical", team, what);
}

}  // namespace penstock::collectives
