// Every rank sends its block to the root, which receives each in its place, and copies its own when all receives wait
// for their messages.
// Cost: n - 1 messages at the root, m bytes sent by each rank. Valid for every team and size; for long blocks.
#include "collectives/parts/stage.hpp"

namespace penstock::collectives {

Plan gather_linear(const Team& team, const Collective& collective) {
  const Region own = contribution(team, collective);
  const Region all = result(team, collective);
  Sequence sequence("gather/linear", team);
  if (team.rank != collective.root) {
    sequence.send(own, collective.root, 0);
  } else {
    for (int rank = 0; rank < team.size(); ++rank)
      if (rank != team.rank) sequence.recv(block_of(all, collective, rank), rank, 0);
    sequence.copy(own, block_of(all, collective, team.rank));
  }
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
