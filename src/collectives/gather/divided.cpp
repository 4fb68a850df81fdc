// Each task copies one segment of a block to its place at the root; any core of the node may run it. Cost: 1 or 2
// copies per block, by all free cores. Valid on one node.
#include <array>

#include "collectives/parts/node_tasks.hpp"

namespace penstock::collectives {

Plan gather_divided(const Team& team, const Collective& collective) {
  const std::uint64_t bytes = block_bytes(collective);
  const Region all{0, bytes * static_cast<std::uint64_t>(team.size()), Buffer::output};
  const Segments segments = task_segments(collective, kCopyTaskBytes, team.size());
  Sequence sequence("gather/divided", team);
  for (int rank = 0; rank < team.size() && bytes > 0; ++rank)
    for (std::uint32_t s = 0; s < segments.count(); ++s)
      sequence.task({.segment = s}, std::array{RankRegion{segments.of({0, bytes, Buffer::input}, s), rank}},
                    std::array{RankRegion{segments.of(block_of(all, collective, rank), s), collective.root}});
  sequence.publish_tasks();
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
