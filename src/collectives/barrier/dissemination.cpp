// A dissemination barrier: in round k each rank sends an empty message to the rank 2^k ahead, after those of the rounds
// before have come.
// Cost: ceil(log2 n) rounds of empty messages. Valid for every team.
#include "collectives/parts/stage.hpp"

namespace penstock::collectives {

Plan barrier_dissemination(const Team& team, const Collective& collective) {
  Sequence sequence("barrier/dissemination", team);
  dissemination_stage(sequence, by_node(team, 0), 0, Sequence::kNone);
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
