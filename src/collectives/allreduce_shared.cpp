// Each rank copies its contribution into shared memory, tells the others, and combines all contributions itself, in
// the order of the ranks: the result is the same in every bit on all ranks.
// Cost: 1 round, m * (n - 1) bytes read. Valid where all ranks share memory and n * m is small.
#include "collectives/stage.hpp"

namespace penstock::collectives {

Plan allreduce_shared(const Team& team, const Collective& what) {
  const Region own = contribution(team, what);
  const Region target = result(team, what);
  Sequence sequence("allreduce/shared", team);
  if (team.size() == 1) {
    sequence.copy(own, target);
    return finish(std::move(sequence), team, what);
  }
  const Region shown = sequence.shared(target.size_bytes);
  sequence.copy(own, shown);
  for (int i = 1; i < team.size(); ++i) sequence.expose((team.rank + i) % team.size(), 0);
  for (int i = 1; i < team.size(); ++i) sequence.await((team.rank + i) % team.size(), 0);
  for (int peer = 0; peer < team.size(); ++peer) {
    Region part = peer == 0 ? target : shown;
    if (peer == team.rank) {
      if (peer == 0) sequence.copy(shown, target);
    } else {
      if (peer != 0) part = sequence.scratch(target.size_bytes);
      sequence.read(shown, peer, part);
    }
    if (peer != 0) sequence.reduce(part, target);
  }
  return finish(std::move(sequence), team, what);
}

}  // namespace penstock::collectives
