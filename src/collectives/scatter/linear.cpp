// The root sends every rank its block.
// Cost: n - 1 messages and m * (n - 1) bytes sent by the root. Valid for every team and size; for long blocks.
#include "collectives/parts/stage.hpp"

namespace penstock::collectives {

Plan scatter_linear(const Team& team, const Collective& collective) {
  const Region all = contribution(team, collective);
  const Region own = result(team, collective);
  Sequence sequence("scatter/linear", team);
  if (team.rank != collective.root) {
    sequence.recv(own, collective.root, 0);
  } else {
    for (int rank = 0; rank < team.size(); ++rank)
      if (rank != team.rank) sequence.send(block_of(all, collective, rank), rank, 0);
    if (own.size_bytes > 0) sequence.copy(block_of(all, collective, team.rank), own);
  }
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
