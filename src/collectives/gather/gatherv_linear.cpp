// Every rank sends its block to the root, which receives each block in its place, and copies its own when all receives
// wait for their messages. Only the root knows all sizes.
// Cost: n - 1 messages at the root, each rank sends its own block. Valid for every team and size.
#include "collectives/parts/blocks.hpp"

namespace penstock::collectives {

Plan gatherv_linear(const Team& team, const Collective& collective) {
  const Region own = contribution(team, collective);
  Sequence sequence("gatherv/linear", team);
  if (team.rank != collective.root) {
    sequence.send(own, collective.root, 0);
  } else {
    for (int rank = 0; rank < team.size(); ++rank)
      if (rank != team.rank) sequence.recv(receive_block(team, collective, rank), rank, 0);
    sequence.copy(own, receive_block(team, collective, team.rank));
  }
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
