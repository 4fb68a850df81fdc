// A dissemination barrier of radix k: in round r each rank sends empty messages to the k - 1 ranks k^r, 2 k^r, … ahead,
// after those of the rounds before have come.
// Cost: ceil(log_k n) rounds of k - 1 empty messages. Valid for every team.
#include "collectives/parts/stage.hpp"

namespace penstock::collectives {

Plan barrier_dissemination(const Team& team, const Collective& collective) {
  Sequence sequence("barrier/dissemination", team);
  dissemination_stage(sequence, by_node(team, 0), collective.radix, 0, Sequence::kNone);
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
