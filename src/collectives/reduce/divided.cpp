// The buffer is cut into segments. A task combines one segment of all ranks of the node. Any core may run it: progress
// threads while the ranks compute, and ranks that wait. It reads each segment once from each rank and combines in rank
// order in the cache, so the result does not depend on the core.
// Cost: n + 1 segments moved per segment of the result, by all free cores. Valid on one node.
#include <array>

#include "collectives/parts/node_tasks.hpp"

namespace penstock::collectives {

Plan reduce_divided(const Team& team, const Collective& collective) {
  const std::uint64_t bytes = block_bytes(collective);
  const Segments segments = task_segments(collective, kTaskBytes, 1);
  const std::vector<int> ranks = everyone(team);
  Sequence sequence("reduce/divided", team);
  for (std::uint32_t s = 0; s < segments.count() && bytes > 0; ++s)
    sequence.task({.segment = s}, of_each(ranks, segments.of({0, bytes, Buffer::input}, s)),
                  std::array{RankRegion{segments.of({0, bytes, Buffer::output}, s), collective.root}});
  sequence.publish_tasks();
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
