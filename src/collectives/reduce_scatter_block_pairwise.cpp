// See reduce_parts_pairwise.cpp.
#include "collectives/blocks.hpp"

namespace penstock::collectives {

Plan reduce_scatter_block_pairwise(const Team& team, const Collective& what) {
  return reduce_parts_pairwise("reduce_scatter_block/pairwise", team, what);
}

}  // namespace penstock::collectives
