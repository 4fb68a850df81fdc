// See prefix_doubling.cpp.
#include "collectives/prefix.hpp"

namespace penstock::collectives {

Plan scan_doubling(const Team& team, const Collective& what) { return prefix_doubling(team, what); }

}  // namespace penstock::collectives
