// See sorted.cpp.
#include "collectives/sorted.hpp"

namespace penstock::collectives {

Plan allreduce_sorted(const Team& team, const Collective& what) {
  return reduce_sorted_whole("allreduce/sorted", team, what);
}

}  // namespace penstock::collectives
