// Each rank tells the root by a flag how long its block is. Short ones lie beside the flag, longer ones follow as
// messages (Boxes). The root copies its own last. Valid on one node of few ranks.
#include "collectives/parts/blocks.hpp"
#include "collectives/parts/boxes.hpp"

namespace penstock::collectives {

Plan gatherv_shared(const Team& team, const Collective& collective) {
  const Region own = contribution(team, collective);
  Sequence sequence("gatherv/shared", team);
  Boxes boxes(sequence, team, collective, team.size() > 1 ? 1 : 0);
  if (team.rank != collective.root) {
    boxes.put(0, own);
    boxes.signal(0, collective.root, own);
    boxes.send(0, collective.root, own);
    return finish(std::move(sequence), team, collective);
  }
  for (int rank = 0; rank < team.size(); ++rank)
    if (rank != team.rank) boxes.wait(0, rank, receive_block(team, collective, rank));
  for (int rank = 0; rank < team.size(); ++rank)
    if (rank != team.rank) boxes.take(0, rank, receive_block(team, collective, rank));
  sequence.copy(own, receive_block(team, collective, team.rank));
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
