// Every rank sends its block to the root, which receives each in its place.
// Cost: n - 1 messages at the root, m bytes sent by each rank. Valid for every team and size; for long blocks.
#include "collectives/parts/stage.hpp"

namespace penstock::collectives {

Plan gather_linear(const Team& team, const Collective& what) {
  const Region own = contribution(team, what);
  const Region all = result(team, what);
  Sequence sequence("gather/linear", team);
  if (team.rank != what.root) {
    sequence.send(own, what.root, 0);
  } else {
    for (int rank = 0; rank < team.size(); ++rank) {
      const Region block = block_of(all, what, rank);
      if (rank == team.rank)
        sequence.copy(own, block);
      else
        sequence.recv(block, rank, 0);
    }
  }
  return finish(std::move(sequence), team, what);
}

}  // namespace penstock::collectives
