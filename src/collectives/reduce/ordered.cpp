// Reduction to rank 0 along a binomial tree over the ranks in rank order, lower ranks on the left; rank 0 sends the
// result to the root. For operations that do not commute. Cost: ceil(log2 n) rounds, one more unless rank 0 is the
// root, in segments. Valid for every team and size.
#include "collectives/parts/in_order.hpp"

namespace penstock::collectives {

Plan reduce_ordered(const Team& team, const Collective& collective) {
  const StageId up{.number = 0};
  const StageId on{.number = 1};
  const Segments segments(collective);
  const Region own = contribution(team, collective);
  const Region target = result(team, collective);
  Sequence sequence("reduce/ordered", team);
  OrderedStage stage(sequence, tree_in_order(team), segments, up);
  for (std::uint32_t s = 0; s < segments.count(); ++s) {
    const Region sum = stage.run(s, segments.of(own, s));
    if (team.rank == 0 && collective.root != 0) sequence.send(sum, collective.root, on.tag(s));
    if (team.rank == 0 && collective.root == 0) sequence.copy(sum, segments.of(target, s));
    if (team.rank != 0 && team.rank == collective.root) sequence.recv(segments.of(target, s), 0, on.tag(s));
  }
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
