// The buffer is cut into segments; each is a task on the memory of all ranks of the node that any core may take:
// progress threads while the ranks compute, and every rank that waits. Each segment is read once from each rank and
// summed in cache, in the order of the ranks, so the result does not depend on who did it.
// Cost: n + 1 segments moved per segment of the result, shared by all cores that have time. Valid on one node.
#include <array>

#include "collectives/parts/node_tasks.hpp"

namespace penstock::collectives {

namespace {
constexpr std::uint64_t kReduceSegmentBytes = 64 << 10;
}

Plan reduce_divided(const Team& team, const Collective& collective) {
  const std::uint64_t bytes = block_bytes(collective);
  const Segments segments = task_segments(collective, kReduceSegmentBytes, 1);
  const std::vector<int> ranks = everyone(team);
  Sequence sequence("reduce/divided", team);
  for (std::uint32_t s = 0; s < segments.count() && bytes > 0; ++s)
    sequence.task({.segment = s}, of_each(ranks, segments.of({0, bytes, Buffer::input}, s)),
                  std::array{RankRegion{segments.of({0, bytes, Buffer::output}, s), collective.root}});
  sequence.publish_tasks();
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
