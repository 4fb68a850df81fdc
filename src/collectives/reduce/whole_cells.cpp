// The root gets the contributions of the others through cells and combines them alone. Cost: m bytes in on each of the
// others, m(n-1) bytes out and combined at the root, at the same time. Valid on one node.
#include "collectives/parts/cells.hpp"

namespace penstock::collectives {

Plan reduce_whole_cells(const Team& team, const Collective& what) {
  const CellSegments segments(team, what, 1, 1);
  const CellStream stream(segments, 0, 0, 0);
  const Region own = contribution(team, what);
  const Region sums = result(team, what);
  const bool is_root = team.rank == what.root;
  Sequence sequence("reduce/whole_cells", team);
  if (!is_root && segments.count() > 0) sequence.shared(CellSegments::kInFlight * segments.cell_bytes());
  CellSums cell_sums(sequence, team, what, is_root ? segments.cell_bytes() : 0);
  for (std::uint32_t s = 0; s < segments.count(); ++s) {
    sequence.at(0, s);
    if (!is_root) {
      stream.put(sequence, s, segments.of(own, s), {&what.root, 1});
      continue;
    }
    const Region target = segments.of(sums, s);
    const Region sum =
        cell_sums.combine(segments.of(own, s), target, [&](int rank, Region to) { stream.get(sequence, s, rank, to); });
    sequence.copy(sum, target);
  }
  return finish(std::move(sequence), team, what);
}

}  // namespace penstock::collectives
