// The root sends each rank its block, then copies its own. Only the root knows the sizes of all blocks.
// Cost: n - 1 messages at the root, each rank receives its own block. Valid for every team and size.
#include "collectives/parts/blocks.hpp"

namespace penstock::collectives {

Plan scatterv_linear(const Team& team, const Collective& collective) {
  const Region target = result(team, collective);
  Sequence sequence("scatterv/linear", team);
  if (team.rank != collective.root) {
    sequence.recv(target, collective.root, 0);
  } else {
    for (int rank = 0; rank < team.size(); ++rank)
      if (rank != team.rank) sequence.send(send_block(team, collective, rank), rank, 0);
    if (!collective.in_place) sequence.copy(send_block(team, collective, team.rank), target);
  }
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
