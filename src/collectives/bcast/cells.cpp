// The root copies its buffer into cells of shared memory, from which the others copy it. Cost: m bytes in, m bytes out
// on each other rank, at the same time. Valid on one node.
#include "collectives/parts/cells.hpp"

namespace penstock::collectives {

Plan bcast_cells(const Team& team, const Collective& what) {
  const CellSegments segments(team, what, 1, 1);
  const CellStream stream(segments, 0, 0, 0);
  const Region data = result(team, what);
  Sequence sequence("bcast/cells", team);
  const bool is_root = team.rank == what.root;
  const std::vector<int> readers = others(team, what.root);
  if (is_root && segments.count() > 0) sequence.shared(CellSegments::kInFlight * segments.cell_bytes());
  for (std::uint32_t s = 0; s < segments.count(); ++s) {
    sequence.at(0, s);
    if (is_root)
      stream.put(sequence, s, segments.of(data, s), readers);
    else
      stream.get(sequence, s, what.root, segments.of(data, s));
  }
  return finish(std::move(sequence), team, what);
}

}  // namespace penstock::collectives
