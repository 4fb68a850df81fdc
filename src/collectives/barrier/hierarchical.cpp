// The ranks of a node signal their leader, the leaders run a dissemination barrier, and each leader signals the ranks
// of its node. Cost: 2 signals per rank inside a node, ceil(log_k nodes) rounds of k - 1 empty messages between nodes.
// Valid for every team.
#include "collectives/parts/stage.hpp"

namespace penstock::collectives {

Plan barrier_hierarchical(const Team& team, const Collective& collective) {
  const Group node = node_group(team, 0);
  Sequence sequence("barrier/hierarchical", team);
  if (node.self != 0) {
    const StepId here = sequence.signal(node[0], 0);
    sequence.wait(node[0], 0, {here});
    return finish(std::move(sequence), team, collective);
  }
  // A chain of waits, so that the last one stands for all of them.
  StepId here = Sequence::kNone;
  for (int i = 1; i < node.size(); ++i) here = sequence.wait(node[i], 0, {here});
  const StepId everywhere = dissemination_stage(sequence, leaders(team, 0), collective.radix, 0, here);
  for (int i = 1; i < node.size(); ++i) sequence.signal(node[i], 0, {everywhere});
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
