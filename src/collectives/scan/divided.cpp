// scan and exscan: for each segment and rank, a task combines the result of the previous rank with a contribution. Any
// core of the node may run it. Segments form a pipeline over the ranks. Cost: 3 segments moved per segment of a result,
// by all free cores. Valid on one node; combines in rank order.
#include <array>

#include "collectives/parts/node_tasks.hpp"

namespace penstock::collectives {

Plan prefix_divided(const std::string& algorithm, const Team& team, const Collective& collective) {
  const std::uint64_t bytes = block_bytes(collective);
  const bool is_inclusive = collective.kind == CollectiveKind::scan;
  const Segments segments = task_segments(collective, kCopyTaskBytes, team.size() - 1);
  const Region target{0, bytes, Buffer::output};
  Sequence sequence(algorithm, team);
  Region own = is_inclusive ? target : Region{0, bytes, Buffer::input};
  if (is_inclusive) {
    sequence.copy(contribution(team, collective), target);
  } else if (collective.in_place) {
    own = sequence.scratch(bytes);
    sequence.copy(contribution(team, collective), own);
  }
  std::vector<GrowingTasks> tasks(segments.count(), GrowingTasks(sequence, team.size()));
  for (int rank = 1; rank < team.size(); ++rank)
    for (std::uint32_t s = 0; s < segments.count(); ++s) {
      const Region into = segments.of(target, s);
      const RankRegion before{into, rank - 1};
      if (is_inclusive)
        tasks[s].add(0, s, rank - 1, rank, std::array{before, RankRegion{into, rank}}, {into, rank});
      else if (rank == 1)
        tasks[s].add(0, s, 0, 1, std::array{RankRegion{segments.of(own, s), 0}}, {into, 1});
      else
        tasks[s].add(0, s, rank - 1, rank, std::array{before, RankRegion{segments.of(own, s), rank - 1}}, {into, rank});
    }
  sequence.publish_tasks();
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
