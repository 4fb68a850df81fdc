// All show their blocks, and the root reads them. Valid where all ranks share memory and what they show is small.
#include <utility>

#include "collectives/shown.hpp"

namespace penstock::collectives {

Plan gather_shared(const Team& team, const Collective& what) {
  Shown shown("gather/shared", team, what);
  if (team.rank != what.root) {
    shown.show(contribution(team, what));
    shown.expose(what.root);
  } else {
    shown.keep(contribution(team, what));
    for (int i = 1; i < team.size(); ++i) shown.await((what.root + i) % team.size());
    for (int rank = 0; rank < team.size(); ++rank) shown.take(rank, 0, block_of(result(team, what), what, rank));
  }
  return std::move(shown).finish();
}

}  // namespace penstock::collectives
