// Each rank copies its blocks for others into staging buffers of shared memory, from which those copy them. Cost:
// m(n-1) bytes in, m(n-1) bytes out per rank. Valid on one node.
#include "collectives/parts/blocks.hpp"
#include "collectives/parts/staging.hpp"

namespace penstock::collectives {

Plan alltoall_staged(const Team& team, const Collective& collective) {
  const int size = team.size();
  const std::vector<int> peers = others(team, team.rank);
  const StagedSegments segments(team, collective, 1, static_cast<std::uint32_t>(peers.size()));
  const auto stream = [&](int writer, int reader) {
    return StagingStream(segments, 0, 0, static_cast<std::uint64_t>((reader - writer - 1 + size) % size));
  };
  Sequence sequence("alltoall/staged", team);
  if (segments.count() > 0) sequence.shared(peers.size() * StagedSegments::kInFlight * segments.buffer_bytes());
  for (std::uint32_t s = 0; s <= segments.count(); ++s) {  // one segment ahead
    for (const int peer : peers)
      if (s < segments.count())
        stream(team.rank, peer)
            .put(sequence.at(0, s), s, segments.of(send_block(team, collective, peer), s), {&peer, 1});
    for (const int peer : peers)
      if (s > 0)
        stream(peer, team.rank)
            .get(sequence.at(0, s - 1), s - 1, peer, segments.of(receive_block(team, collective, peer), s - 1));
  }
  sequence.copy(send_block(team, collective, team.rank), receive_block(team, collective, team.rank));
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
