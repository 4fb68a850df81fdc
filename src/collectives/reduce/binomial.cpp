// Reduction along a binomial tree, as a pipeline of segments.
// Cost: ceil(log2 n) rounds; the root receives every segment ceil(log2 n) times. Valid for every team and size.
#include "collectives/parts/stage.hpp"

namespace penstock::collectives {

Plan reduce_binomial(const Team& team, const Collective& collective) {
  const Tree tree = binomial(by_node(team, collective.root));
  const Segments segments(collective);
  const Region own = contribution(team, collective);
  const Region target = result(team, collective);
  const bool is_root = team.rank == collective.root;
  Sequence sequence("reduce/binomial", team);
  sequence.tree_levels(tree.levels);
  ReduceStage stage(sequence, tree, segments, {});
  for (std::uint32_t s = 0; s < segments.count(); ++s) {
    const Region into = is_root ? segments.of(target, s) : Region{};
    const Region sum = stage.run(s, segments.of(own, s), into);
    if (is_root) sequence.copy(sum, into);
  }
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
