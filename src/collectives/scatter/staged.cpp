// The root copies each rank's block into staging buffers of shared memory, from which that rank copies it. Cost: m(n-1)
// bytes in at the root, m bytes out. Valid on one node.
#include "collectives/parts/staging.hpp"

namespace penstock::collectives {

Plan scatter_staged(const Team& team, const Collective& collective) {
  const std::vector<int> readers = others(team, collective.root);
  const StagedSegments segments(team, collective, 1, static_cast<std::uint32_t>(readers.size()));
  const auto stream = [&](std::size_t reader) { return StagingStream(segments, 0, 0, reader); };
  const Region all = contribution(team, collective);
  const Region own = result(team, collective);
  Sequence sequence("scatter/staged", team);
  if (team.rank == collective.root && segments.count() > 0)
    sequence.shared(readers.size() * StagedSegments::kInFlight * segments.buffer_bytes());
  for (std::uint32_t s = 0; s < segments.count(); ++s)
    for (std::size_t i = 0; i < readers.size(); ++i) {
      if (team.rank == collective.root)
        stream(i).put(sequence.at(0, s), s, segments.of(block_of(all, collective, readers[i]), s), {&readers[i], 1});
      else if (team.rank == readers[i])
        stream(i).get(sequence.at(0, s), s, collective.root, segments.of(own, s));
    }
  if (team.rank == collective.root && own.size_bytes > 0) sequence.copy(block_of(all, collective, team.rank), own);
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
