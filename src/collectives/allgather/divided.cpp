// Each task copies one segment of a block to a few ranks; any core of the node may run it. Cost: 1 to 2 copies per
// block and rank, by all free cores. Valid on one node.
#include <algorithm>
#include <array>

#include "collectives/parts/node_tasks.hpp"

namespace penstock::collectives {

namespace {
constexpr int kAllgatherTargets = 4;  // as in bcast_divided
}  // namespace

Plan allgather_divided(const Team& team, const Collective& collective) {
  const std::uint64_t bytes = block_bytes(collective);
  const Region all = result(team, collective);
  const int targets = targets_per_task(team.size(), kAllgatherTargets);
  const Segments segments =
      task_segments(collective, kCopyTaskBytes, team.size() * ((team.size() + targets - 1) / targets));
  Sequence sequence("allgather/divided", team);
  for (int rank = 0; rank < team.size() && bytes > 0; ++rank) {
    std::vector<int> ranks = everyone(team);
    if (collective.in_place) ranks.erase(ranks.begin() + rank);
    for (std::uint32_t s = 0; s < segments.count(); ++s) {
      const Region segment = segments.of(block_of(all, collective, rank), s);
      const Region from = collective.in_place ? segment : segments.of({0, bytes, Buffer::input}, s);
      for (std::size_t first = 0; first < ranks.size(); first += static_cast<std::size_t>(targets))
        sequence.task(
            {.segment = s}, std::array{RankRegion{from, rank}},
            of_each(std::span(ranks).subspan(first, std::min(static_cast<std::size_t>(targets), ranks.size() - first)),
                    segment));
    }
  }
  sequence.publish_tasks();
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
