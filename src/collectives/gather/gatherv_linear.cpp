// Every rank sends its block to the root, which receives each in its place and alone knows how large the others are.
// Cost: n - 1 messages at the root, the own block sent by each rank. Valid for every team and size.
#include "collectives/parts/blocks.hpp"

namespace penstock::collectives {

Plan gatherv_linear(const Team& team, const Collective& what) {
  const Region own = contribution(team, what);
  Sequence sequence("gatherv/linear", team);
  if (team.rank != what.root) sequence.send(own, what.root, 0);
  for (int rank = 0; rank < team.size() && team.rank == what.root; ++rank) {
    const Region block = receive_block(team, what, rank);
    if (rank == team.rank)
      sequence.copy(own, block);
    else
      sequence.recv(block, rank, 0);
  }
  return finish(std::move(sequence), team, what);
}

}  // namespace penstock::collectives
