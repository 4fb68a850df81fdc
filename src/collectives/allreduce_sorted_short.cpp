// See sorted.cpp.
#include "collectives/sorted.hpp"

namespace penstock::collectives {

Plan allreduce_sorted_short(const Team& team, const Collective& what) {
  return reduce_sorted_at_once("allreduce/sorted_short", team, what);
}

}  // namespace penstock::collectives
