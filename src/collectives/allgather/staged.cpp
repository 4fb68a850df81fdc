// Each rank copies its block into staging buffers of shared memory, from which all others copy it. Cost: m bytes in,
// m(n-1) bytes out per rank. With counts, the longest block is cut, and the others into as many segments. Valid on one
// node.
#include "collectives/choose/planners.hpp"
#include "collectives/parts/staging.hpp"

namespace penstock::collectives {

Plan gather_all_staged(const std::string& algorithm, const Team& team, const Collective& collective) {
  const StagedSegments segments(team, collective, 1, 1);
  const auto stream = [&](int writer) {
    return StagingStream(segments, has_counts(collective.kind) ? static_cast<std::uint32_t>(writer) : 0, 0, 0);
  };
  const std::vector<int> peers = others(team, team.rank);
  const Region own = contribution(team, collective);
  Sequence sequence(algorithm, team);
  if (segments.count() > 0) sequence.shared(StagedSegments::kInFlight * segments.buffer_bytes());
  for (std::uint32_t s = 0; s <= segments.count(); ++s) {  // one segment ahead
    if (s < segments.count()) stream(team.rank).put(sequence.at(0, s), s, segments.of(own, s), peers);
    for (const int peer : peers)
      if (s > 0)
        stream(peer).get(sequence.at(0, s - 1), s - 1, peer, segments.of(receive_block(team, collective, peer), s - 1));
  }
  sequence.copy(own, receive_block(team, collective, team.rank));
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
