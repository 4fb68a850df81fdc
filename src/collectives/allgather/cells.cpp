// Each rank copies its block into cells of shared memory, from which all others copy it. Cost: m bytes in, m(n-1) bytes
// out per rank. Valid on one node.
#include "collectives/parts/cells.hpp"

namespace penstock::collectives {

Plan allgather_cells(const Team& team, const Collective& what) {
  const CellSegments segments(team, what, 1, 1);
  const CellStream stream(segments, 0, 0, 0);
  const std::vector<int> peers = others(team, team.rank);
  const Region own = contribution(team, what);
  const Region all = result(team, what);
  Sequence sequence("allgather/cells", team);
  if (segments.count() > 0) sequence.shared(CellSegments::kInFlight * segments.cell_bytes());
  for (std::uint32_t s = 0; s <= segments.count(); ++s) {  // one segment ahead
    if (s < segments.count()) stream.put(sequence.at(0, s), s, segments.of(own, s), peers);
    for (const int peer : peers)
      if (s > 0) stream.get(sequence.at(0, s - 1), s - 1, peer, segments.of(block_of(all, what, peer), s - 1));
  }
  sequence.copy(own, block_of(all, what, team.rank));
  return finish(std::move(sequence), team, what);
}

}  // namespace penstock::collectives
