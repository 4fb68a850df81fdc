// Reduction to rank 0 along a binomial tree over the ranks in rank order, lower ranks on the left, and broadcast back,
// one segment apart. For operations that do not commute. Cost: 2 * ceil(log2 n) rounds, in segments. Valid for every
// team and size.
#include "collectives/parts/in_order.hpp"

namespace penstock::collectives {

Plan allreduce_ordered(const Team& team, const Collective& collective) {
  const Tree tree = tree_in_order(team);
  const Segments segments(collective);
  const Region own = contribution(team, collective);
  const Region target = result(team, collective);
  Sequence sequence("allreduce/ordered", team);
  OrderedStage up(sequence, tree, segments, {.number = 0});
  for (std::uint32_t s = 0; s < segments.count(); ++s) {
    const Region into = segments.of(target, s);
    const Region sum = up.run(s, segments.of(own, s));
    if (tree.parent < 0) sequence.copy(sum, into);
    bcast_stage(sequence, tree, into, s, {.number = 1});
  }
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
