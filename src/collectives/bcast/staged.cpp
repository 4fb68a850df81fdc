// The root copies its buffer into staging buffers of shared memory, from which the others copy it. Cost: m bytes in, m
// bytes out on each other rank, at the same time. Valid on one node.
#include "collectives/parts/staging.hpp"

namespace penstock::collectives {

Plan bcast_staged(const Team& team, const Collective& collective) {
  const StagedSegments segments(team, collective, 1, 1);
  const StagingStream stream(segments, 0, 0, 0);
  const Region data = result(team, collective);
  Sequence sequence("bcast/staged", team);
  const bool is_root = team.rank == collective.root;
  const std::vector<int> readers = others(team, collective.root);
  if (is_root && segments.count() > 0) sequence.shared(StagedSegments::kInFlight * segments.buffer_bytes());
  for (std::uint32_t s = 0; s < segments.count(); ++s) {
    sequence.at(0, s);
    if (is_root)
      stream.put(sequence, s, segments.of(data, s), readers);
    else
      stream.get(sequence, s, collective.root, segments.of(data, s));
  }
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
