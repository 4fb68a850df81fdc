// See sorted.cpp.
#include "collectives/sorted.hpp"

namespace penstock::collectives {

Plan reduce_sorted_short(const Team& team, const Collective& what) {
  return reduce_sorted_at_once("reduce/sorted_short", team, what);
}

}  // namespace penstock::collectives
