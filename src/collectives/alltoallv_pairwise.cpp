// See exchange_pairwise.cpp.
#include "collectives/blocks.hpp"

namespace penstock::collectives {

Plan alltoallv_pairwise(const Team& team, const Collective& what) {
  return exchange_pairwise("alltoallv/pairwise", team, what);
}

}  // namespace penstock::collectives
