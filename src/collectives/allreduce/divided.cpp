// As reduce_divided, but each segment's sum is written to all ranks.
// Cost: 2n segments moved per segment of the result, by all free cores. Valid on one node.
#include "collectives/parts/node_tasks.hpp"

namespace penstock::collectives {

Plan allreduce_divided(const Team& team, const Collective& collective) {
  const std::uint64_t bytes = block_bytes(collective);
  const Segments segments = task_segments(collective, kTaskBytes, 1);
  const std::vector<int> ranks = everyone(team);
  Sequence sequence("allreduce/divided", team);
  for (std::uint32_t s = 0; s < segments.count() && bytes > 0; ++s)
    sequence.task({.segment = s}, of_each(ranks, segments.of(contribution(team, collective), s)),
                  of_each(ranks, segments.of(result(team, collective), s)));
  sequence.publish_tasks();
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
