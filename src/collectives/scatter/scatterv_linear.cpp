// The root sends each rank its block from its place; it alone knows how large the others are.
// Cost: n - 1 messages at the root, the own block received by each rank. Valid for every team and size.
#include "collectives/parts/blocks.hpp"

namespace penstock::collectives {

Plan scatterv_linear(const Team& team, const Collective& what) {
  const Region target = result(team, what);
  Sequence sequence("scatterv/linear", team);
  if (team.rank != what.root) sequence.recv(target, what.root, 0);
  for (int rank = 0; rank < team.size() && team.rank == what.root; ++rank) {
    const Region block = send_block(team, what, rank);
    if (rank != team.rank)
      sequence.send(block, rank, 0);
    else if (!what.in_place)
      sequence.copy(block, target);
  }
  return finish(std::move(sequence), team, what);
}

}  // namespace penstock::collectives
