// All show their contributions to higher ranks and combine those of the lower ones and theirs, in order. Valid
// where all ranks share memory and what they show is small.
#include <utility>

#include "collectives/parts/shown.hpp"

namespace penstock::collectives {

Plan scan_shared(const Team& team, const Collective& what) {
  Shown shown("scan/shared", team, what);
  shown.to_higher(contribution(team, what));
  shown.combine(team.rank + 1, 0, result(team, what));
  return std::move(shown).finish();
}

}  // namespace penstock::collectives
