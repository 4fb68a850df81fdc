// The root copies each rank's block into cells of shared memory, from which that rank copies it. Cost: m(n-1) bytes in
// at the root, m bytes out. Valid on one node.
#include "collectives/parts/cells.hpp"

namespace penstock::collectives {

Plan scatter_cells(const Team& team, const Collective& what) {
  const std::vector<int> readers = others(team, what.root);
  const CellSegments segments(team, what, 1, static_cast<std::uint32_t>(readers.size()));
  const auto stream = [&](std::size_t reader) { return CellStream(segments, 0, 0, reader); };
  const Region all = contribution(team, what);
  const Region own = result(team, what);
  Sequence sequence("scatter/cells", team);
  if (team.rank == what.root && segments.count() > 0)
    sequence.shared(readers.size() * CellSegments::kInFlight * segments.cell_bytes());
  for (std::uint32_t s = 0; s < segments.count(); ++s)
    for (std::size_t i = 0; i < readers.size(); ++i) {
      if (team.rank == what.root)
        stream(i).put(sequence.at(0, s), s, segments.of(block_of(all, what, readers[i]), s), {&readers[i], 1});
      else if (team.rank == readers[i])
        stream(i).get(sequence.at(0, s), s, what.root, segments.of(own, s));
    }
  if (team.rank == what.root && own.size_bytes > 0) sequence.copy(block_of(all, what, team.rank), own);
  return finish(std::move(sequence), team, what);
}

}  // namespace penstock::collectives
