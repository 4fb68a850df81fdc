// See reduce_parts_ring.cpp.
#include "collectives/blocks.hpp"

namespace penstock::collectives {

Plan reduce_scatter_block_ring(const Team& team, const Collective& what) {
  return reduce_parts_ring("reduce_scatter_block/ring", team, what);
}

}  // namespace penstock::collectives
