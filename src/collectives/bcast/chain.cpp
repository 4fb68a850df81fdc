// Broadcast along a chain of all ranks, in many segments: every rank sends and receives each byte at most once.
// Cost: n - 1 + segments - 1 rounds of one segment. Valid for every team and size; for long messages.
#include "collectives/parts/stage.hpp"

namespace penstock::collectives {

Plan bcast_chain(const Team& team, const Collective& collective) {
  const Tree tree = chain(by_node(team, collective.root));
  const Segments segments(collective);
  const Region data = result(team, collective);
  Sequence sequence("bcast/chain", team);
  for (std::uint32_t s = 0; s < segments.count(); ++s) bcast_stage(sequence, tree, segments.of(data, s), s, {});
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
