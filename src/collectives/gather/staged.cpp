// Each rank copies its block into staging buffers of shared memory, from which the root copies it. Cost: m bytes in,
// m(n-1) bytes out at the root. Valid on one node.
#include "collectives/parts/staging.hpp"

namespace penstock::collectives {

Plan gather_staged(const Team& team, const Collective& collective) {
  const StagedSegments segments(team, collective, 1, 1);
  const StagingStream stream(segments, 0, 0, 0);
  const Region own = contribution(team, collective);
  const Region all = result(team, collective);
  Sequence sequence("gather/staged", team);
  if (team.rank != collective.root) {
    if (segments.count() > 0) sequence.shared(StagedSegments::kInFlight * segments.buffer_bytes());
    for (std::uint32_t s = 0; s < segments.count(); ++s)
      stream.put(sequence.at(0, s), s, segments.of(own, s), {&collective.root, 1});
    return finish(std::move(sequence), team, collective);
  }
  sequence.copy(own, block_of(all, collective, team.rank));
  for (std::uint32_t s = 0; s < segments.count(); ++s)
    for (const int rank : others(team, collective.root))
      stream.get(sequence.at(0, s), s, rank, segments.of(block_of(all, collective, rank), s));
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
