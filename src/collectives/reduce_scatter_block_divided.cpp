// See reduce_parts_divided.cpp.
#include "collectives/blocks.hpp"

namespace penstock::collectives {

Plan reduce_scatter_block_divided(const Team& team, const Collective& what) {
  return reduce_parts_divided("reduce_scatter_block/divided", team, what);
}

}  // namespace penstock::collectives
