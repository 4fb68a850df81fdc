// Reduction along a chain of all ranks, in many segments: every rank sends and receives each byte at most once.
// Cost: n - 1 + segments - 1 rounds of one segment. Valid for every team and size; for long messages.
#include "collectives/parts/stage.hpp"

namespace penstock::collectives {

Plan reduce_chain(const Team& team, const Collective& collective) {
  const Tree tree = chain(by_node(team, collective.root));
  const Segments segments(collective);
  const Region own = contribution(team, collective);
  const Region target = result(team, collective);
  const bool is_root = team.rank == collective.root;
  Sequence sequence("reduce/chain", team);
  ReduceStage stage(sequence, tree, segments, {});
  for (std::uint32_t s = 0; s < segments.count(); ++s) {
    const Region into = is_root ? segments.of(target, s) : Region{};
    const Region sum = stage.run(s, segments.of(own, s), into);
    if (is_root) sequence.copy(sum, into);
  }
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
