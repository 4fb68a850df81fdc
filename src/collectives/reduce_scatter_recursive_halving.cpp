// See reduce_parts_halving.cpp.
#include "collectives/blocks.hpp"

namespace penstock::collectives {

Plan reduce_scatter_recursive_halving(const Team& team, const Collective& what) {
  return reduce_parts_halving("reduce_scatter/recursive_halving", team, what);
}

}  // namespace penstock::collectives
