// The buffer is cut into segments. A task copies one segment to a few ranks. Any core of the node may run it: progress
// threads while the ranks compute, and ranks that wait. A late rank only delays its own tasks.
// Cost: 1 to 2 copies per segment and rank, by all free cores. Valid on one node.
#include <algorithm>
#include <array>

#include "collectives/parts/node_tasks.hpp"

namespace penstock::collectives {

namespace {
constexpr int kBcastTargets = 4;  // per task: more targets save reads of the source, fewer wait for fewer ranks
}  // namespace

Plan bcast_divided(const Team& team, const Collective& collective) {
  const Region whole{0, block_bytes(collective), Buffer::output};
  const std::vector<int> ranks = from_root(team, collective).ranks;
  const Segments segments = task_segments(collective, kTaskBytes, (team.size() + kBcastTargets - 2) / kBcastTargets);
  Sequence sequence("bcast/divided", team);
  for (std::uint32_t s = 0; s < segments.count() && whole.size_bytes > 0; ++s) {
    const Region segment = segments.of(whole, s);
    for (std::size_t first = 1; first < ranks.size(); first += kBcastTargets)
      sequence.task({.segment = s}, std::array{RankRegion{segment, collective.root}},
                    of_each(std::span(ranks).subspan(first, std::min<std::size_t>(kBcastTargets, ranks.size() - first)),
                            segment));
  }
  sequence.publish_tasks();
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
