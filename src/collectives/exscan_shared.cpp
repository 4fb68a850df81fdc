// All show their contributions to higher ranks and combine those of the lower ones, in order. Valid where all ranks
// share memory and what they show is small.
#include <utility>

#include "collectives/shown.hpp"

namespace penstock::collectives {

Plan exscan_shared(const Team& team, const Collective& what) {
  Shown shown("exscan/shared", team, what);
  const bool is_last = team.rank == team.size() - 1;
  is_last ? shown.keep(contribution(team, what)) : shown.show(contribution(team, what));
  for (int peer = team.rank + 1; peer < team.size(); ++peer) shown.expose(peer);
  for (int peer = 0; peer < team.rank; ++peer) shown.await(peer);
  shown.combine(team.rank, 0, result(team, what));
  return std::move(shown).finish();
}

}  // namespace penstock::collectives
