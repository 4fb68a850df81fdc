// Reduction to the first rank and broadcast from it, along one binomial tree. The two overlap, one segment apart.
// Cost: 2 * ceil(log2 n) rounds; the first rank receives and sends every segment ceil(log2 n) times. Valid for every
// team and size.
#include "collectives/parts/stage.hpp"

namespace penstock::collectives {

Plan allreduce_binomial(const Team& team, const Collective& collective) {
  const Tree tree = binomial(by_node(team, 0));
  const Segments segments(collective);
  const Region own = contribution(team, collective);
  const Region target = result(team, collective);
  Sequence sequence("allreduce/binomial", team);
  sequence.tree_levels(tree.levels);
  ReduceStage up(sequence, tree, segments, {.number = 0});
  for (std::uint32_t s = 0; s < segments.count(); ++s) {
    const Region into = segments.of(target, s);
    const Region sum = up.run(s, segments.of(own, s), into);
    if (tree.parent < 0) sequence.copy(sum, into);
    bcast_stage(sequence, tree, into, s, {.number = 1});
  }
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
