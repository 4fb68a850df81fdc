// The buffer is cut into segments; copying one to a few ranks is a task that any core of the node may take: progress
// threads while the ranks compute, and every rank that waits. A rank that comes late delays its own few alone.
// Cost: between 1 and 2 copies per segment and rank, shared by all cores that have time. Valid on one node.
#include <algorithm>
#include <array>

#include "collectives/parts/node_tasks.hpp"

namespace penstock::collectives {

namespace {
constexpr std::uint64_t kBcastSegmentBytes = 64 << 10;
constexpr int kBcastTargets = 4;  // read once, written so often: a compromise between copies and waiting for each other
}  // namespace

Plan bcast_divided(const Team& team, const Collective& collective) {
  const Region whole{0, block_bytes(collective), Buffer::output};
  const std::vector<int> ranks = from_root(team, collective).ranks;
  const Segments segments =
      task_segments(collective, kBcastSegmentBytes, (team.size() + kBcastTargets - 2) / kBcastTargets);
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
