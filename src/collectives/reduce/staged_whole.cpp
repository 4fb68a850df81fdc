// The root gets all contributions through staging buffers and combines them alone. Cost: m bytes copied in by each
// other rank, m(n-1) bytes copied out and combined by the root; both overlap. Valid on one node.
#include "collectives/parts/staging.hpp"

namespace penstock::collectives {

Plan reduce_staged_whole(const Team& team, const Collective& collective) {
  const StagedSegments segments(team, collective, 1, 1);
  const StagingStream stream(segments, 0, 0, 0);
  const Region own = contribution(team, collective);
  const Region sums = result(team, collective);
  const bool is_root = team.rank == collective.root;
  Sequence sequence("reduce/staged_whole", team);
  if (!is_root && segments.count() > 0) sequence.shared(StagedSegments::kInFlight * segments.buffer_bytes());
  StagedSums staged_sums(sequence, team, collective, is_root ? segments.buffer_bytes() : 0);
  for (std::uint32_t s = 0; s < segments.count(); ++s) {
    sequence.at(0, s);
    if (!is_root) {
      stream.put(sequence, s, segments.of(own, s), {&collective.root, 1});
      continue;
    }
    const Region target = segments.of(sums, s);
    const Region sum = staged_sums.combine(segments.of(own, s), target,
                                           [&](int rank, Region to) { stream.get(sequence, s, rank, to); });
    sequence.copy(sum, target);
  }
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
