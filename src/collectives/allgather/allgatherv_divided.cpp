// As allgather_divided, with blocks of different sizes and displacements. Displacements can differ between ranks, and a
// rank does not know those of others. So the blocks go to the scratch memory of each rank, one after another, and each
// rank copies them to their places. Cost: 2 to 3 copies per block and rank, by all free cores. Valid on one node.
#include <algorithm>
#include <array>

#include "collectives/parts/blocks.hpp"
#include "collectives/parts/node_tasks.hpp"

namespace penstock::collectives {
namespace {

constexpr int kAllgathervTargets = 4;  // as in bcast_divided

}  // namespace

Plan allgatherv_divided(const Team& team, const Collective& collective) {
  const std::uint64_t element_bytes = collective.item_bytes();
  const Region own = contribution(team, collective);
  Sequence sequence("allgatherv/divided", team);
  const Region all = sequence.scratch(parts_of({}, collective, {0, team.size()}).size_bytes);
  const std::vector<int> ranks = everyone(team);
  const auto targets = static_cast<std::size_t>(targets_per_task(team.size(), kAllgathervTargets));
  const std::uint64_t groups = (ranks.size() + targets - 1) / targets;
  sequence.copy(own, part_of_rank(all, collective, team.rank));
  for (const int rank : ranks) {
    const Region from = part_of_rank(all, collective, rank);
    const std::uint64_t elements = from.size_bytes / element_bytes;
    if (elements == 0) continue;
    const std::uint64_t most =
        std::max<std::uint64_t>(1, kMaxTasks / (groups * static_cast<std::uint64_t>(team.size())));
    const std::uint64_t wanted_bytes = collective.segment_bytes != 0 ? collective.segment_bytes : kCopyTaskBytes;
    const std::uint64_t segments =
        std::clamp<std::uint64_t>(from.size_bytes / wanted_bytes, 1, std::min(most, elements));
    std::vector<int> others = ranks;
    others.erase(others.begin() + rank);
    for (std::uint64_t s = 0; s < segments; ++s) {
      const Region segment = part_of(from, elements, element_bytes, segments, s);
      for (std::size_t first = 0; first < others.size(); first += targets)
        sequence.task({.segment = static_cast<std::uint32_t>(s)}, std::array{RankRegion{segment, rank}},
                      of_each(std::span(others).subspan(first, std::min(targets, others.size() - first)), segment));
    }
  }
  sequence.publish_tasks();
  std::vector<Move> moves;
  for (const int rank : ranks)
    if (rank != team.rank || !collective.in_place)
      moves.push_back({part_of_rank(all, collective, rank), receive_block(team, collective, rank)});
  sequence.move(moves, element_bytes);
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
