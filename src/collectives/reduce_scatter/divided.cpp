// reduce_scatter and reduce_scatter_block: a task combines one segment of a part of all ranks of the node in rank
// order. Any core may run it. Cost: n + 1 segments moved per segment of a result, by all free cores; in place one copy
// more. Valid on one node.
#include <algorithm>
#include <array>

#include "collectives/parts/blocks.hpp"
#include "collectives/parts/node_tasks.hpp"

namespace penstock::collectives {
Plan reduce_parts_divided(const std::string& algorithm, const Team& team, const Collective& collective) {
  const std::uint64_t element_bytes = collective.item_bytes();
  const std::uint64_t elements = all_elements(team, collective);
  const std::vector<int> ranks = everyone(team);
  const Region own = contribution(team, collective);
  Sequence sequence(algorithm, team);
  Region from{0, own.size_bytes, Buffer::input};
  if (collective.in_place) {  // the results overlap parts that other ranks read
    from = sequence.scratch(own.size_bytes);
    sequence.copy(own, from);
  }
  const std::uint64_t wanted_bytes = collective.segment_bytes != 0 ? collective.segment_bytes : kTaskBytes;
  const std::uint64_t most = kMaxTasks - static_cast<std::uint64_t>(team.size());  // each part rounds up once
  for (const int rank : ranks) {
    const Region part = part_of_rank(from, collective, rank);
    const std::uint64_t part_elements = part.size_bytes / element_bytes;
    if (part_elements == 0) continue;
    const auto share = static_cast<std::uint64_t>(static_cast<double>(most) * static_cast<double>(part_elements) /
                                                  static_cast<double>(elements));
    const std::uint64_t segments = std::clamp<std::uint64_t>(
        part.size_bytes / wanted_bytes, 1, std::max<std::uint64_t>(1, std::min(share, part_elements)));
    const Region into{0, part.size_bytes, Buffer::output};
    for (std::uint64_t s = 0; s < segments; ++s)
      sequence.task({.segment = static_cast<std::uint32_t>(s)},
                    of_each(ranks, part_of(part, part_elements, element_bytes, segments, s)),
                    std::array{RankRegion{part_of(into, part_elements, element_bytes, segments, s), rank}});
  }
  sequence.publish_tasks();
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
