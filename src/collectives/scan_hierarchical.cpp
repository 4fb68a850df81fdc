// See prefix_hierarchical.cpp.
#include "collectives/prefix.hpp"

namespace penstock::collectives {

Plan scan_hierarchical(const Team& team, const Collective& what) { return prefix_hierarchical(team, what); }

}  // namespace penstock::collectives
