// The ranks of a node signal their leader along a tree, the leaders run a dissemination barrier, and each leader
// signals the ranks of its node along the tree. Cost: log2 of a node's ranks rounds of signals up and as many down,
// ceil(log_k nodes) rounds of k - 1 empty messages between nodes. Valid for every team.
#include "collectives/parts/stage.hpp"

namespace penstock::collectives {

Plan barrier_hierarchical(const Team& team, const Collective& collective) {
  const Tree tree = tree_of_node(team, node_group(team, 0));
  Sequence sequence("barrier/hierarchical", team);
  // A chain of waits, so that the last one stands for all of them. Small subtrees are ready first.
  StepId here = Sequence::kNone;
  for (std::size_t i = tree.children.size(); i-- > 0;) here = sequence.wait(tree.children[i].rank, 0, {here});
  if (tree.parent >= 0) {
    here = sequence.signal(tree.parent, 0, {here});
    here = sequence.wait(tree.parent, 0, {here});
  } else {
    here = dissemination_stage(sequence, leaders(team, 0), collective.radix, 0, here);
  }
  for (const Tree::Edge& child : tree.children) sequence.signal(child.rank, 0, {here});
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
