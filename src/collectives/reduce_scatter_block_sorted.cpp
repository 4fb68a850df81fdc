// See sorted.cpp.
#include "collectives/sorted.hpp"

namespace penstock::collectives {

Plan reduce_scatter_block_sorted(const Team& team, const Collective& what) {
  return reduce_parts_sorted("reduce_scatter_block/sorted", team, what);
}

}  // namespace penstock::collectives
