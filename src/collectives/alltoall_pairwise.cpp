// See exchange_pairwise.cpp.
#include "collectives/blocks.hpp"

namespace penstock::collectives {

Plan alltoall_pairwise(const Team& team, const Collective& what) {
  return exchange_pairwise("alltoall/pairwise", team, what);
}

}  // namespace penstock::collectives
