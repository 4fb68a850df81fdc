// See reduce_parts_divided.cpp.
#include "collectives/blocks.hpp"

namespace penstock::collectives {

Plan reduce_scatter_divided(const Team& team, const Collective& what) {
  return reduce_parts_divided("reduce_scatter/divided", team, what);
}

}  // namespace penstock::collectives
