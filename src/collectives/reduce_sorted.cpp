// See sorted.cpp.
#include "collectives/sorted.hpp"

namespace penstock::collectives {

Plan reduce_sorted(const Team& team, const Collective& what) {
  return reduce_sorted_whole("reduce/sorted", team, what);
}

}  // namespace penstock::collectives
