// Broadcast along a binomial tree, as a pipeline of segments.
// Cost: ceil(log2 n) rounds; the root sends every segment ceil(log2 n) times. Valid for every team and size.
#include "collectives/parts/stage.hpp"

namespace penstock::collectives {

Plan bcast_binomial(const Team& team, const Collective& collective) {
  const Tree tree = binomial(by_node(team, collective.root));
  const Segments segments(collective);
  const Region data = result(team, collective);
  Sequence sequence("bcast/binomial", team);
  sequence.tree_levels(tree.levels);
  for (std::uint32_t s = 0; s < segments.count(); ++s) bcast_stage(sequence, tree, segments.of(data, s), s, {});
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
