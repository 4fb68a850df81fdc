// Each rank copies its block into staging buffers of shared memory, from which all others copy it. Cost: m bytes in,
// m(n-1) bytes out per rank. Valid on one node.
#include "collectives/parts/staging.hpp"

namespace penstock::collectives {

Plan allgather_staged(const Team& team, const Collective& collective) {
  const StagedSegments segments(team, collective, 1, 1);
  const StagingStream stream(segments, 0, 0, 0);
  const std::vector<int> peers = others(team, team.rank);
  const Region own = contribution(team, collective);
  const Region all = result(team, collective);
  Sequence sequence("allgather/staged", team);
  if (segments.count() > 0) sequence.shared(StagedSegments::kInFlight * segments.buffer_bytes());
  for (std::uint32_t s = 0; s <= segments.count(); ++s) {  // one segment ahead
    if (s < segments.count()) stream.put(sequence.at(0, s), s, segments.of(own, s), peers);
    for (const int peer : peers)
      if (s > 0) stream.get(sequence.at(0, s - 1), s - 1, peer, segments.of(block_of(all, collective, peer), s - 1));
  }
  sequence.copy(own, block_of(all, collective, team.rank));
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
