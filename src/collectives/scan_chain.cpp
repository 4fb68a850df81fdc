// See prefix_chain.cpp.
#include "collectives/prefix.hpp"

namespace penstock::collectives {

Plan scan_chain(const Team& team, const Collective& what) { return prefix_chain(team, what); }

}  // namespace penstock::collectives
