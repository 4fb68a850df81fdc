// Each rank copies its block into cells of shared memory, from which the root copies it. Cost: m bytes in, m(n-1) bytes
// out at the root. Valid on one node.
#include "collectives/parts/cells.hpp"

namespace penstock::collectives {

Plan gather_cells(const Team& team, const Collective& what) {
  const CellSegments segments(team, what, 1, 1);
  const CellStream stream(segments, 0, 0, 0);
  const Region own = contribution(team, what);
  const Region all = result(team, what);
  Sequence sequence("gather/cells", team);
  if (team.rank != what.root) {
    if (segments.count() > 0) sequence.shared(CellSegments::kInFlight * segments.cell_bytes());
    for (std::uint32_t s = 0; s < segments.count(); ++s)
      stream.put(sequence.at(0, s), s, segments.of(own, s), {&what.root, 1});
    return finish(std::move(sequence), team, what);
  }
  sequence.copy(own, block_of(all, what, team.rank));
  for (std::uint32_t s = 0; s < segments.count(); ++s)
    for (const int rank : others(team, what.root))
      stream.get(sequence.at(0, s), s, rank, segments.of(block_of(all, what, rank), s));
  return finish(std::move(sequence), team, what);
}

}  // namespace penstock::collectives
