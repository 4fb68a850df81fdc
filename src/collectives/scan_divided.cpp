// See prefix_divided.cpp.
#include "collectives/prefix.hpp"

namespace penstock::collectives {

Plan scan_divided(const Team& team, const Collective& what) { return prefix_divided(team, what); }

}  // namespace penstock::collectives
