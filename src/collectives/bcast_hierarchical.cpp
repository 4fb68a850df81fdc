// Broadcast between the leaders of the nodes, then inside each node, both along binomial trees (paper 001, section
// III-A: the tasks ib, sbib and sb). A leader passes a segment on inside its node while the next one arrives.
// Cost: ceil(log2 nodes) rounds between nodes, ceil(log2 ranks) inside. Valid for every team and size.
#include "collectives/stage.hpp"

namespace penstock::collectives {

namespace {
constexpr std::uint64_t kSegmentBytes = 128 << 10;
}

Plan bcast_hierarchical(const Team& team, const Collective& what) {
  const Group between = leaders(team, what.root);
  const Tree inner = binomial(node_group(team, what.root));
  const int levels_between = log2_ceil(between.size());
  const Segments segments(what, kSegmentBytes, kMaxTreeSegments);
  const Region data = result(team, what);
  Sequence sequence("bcast/hierarchical", team);
  sequence.tree_levels(levels_between + log2_ceil(largest_node(team)));
  for (std::uint32_t s = 0; s < segments.count(); ++s) {
    const Region segment = segments.of(data, s);
    if (between.contains_self()) bcast_stage(sequence, binomial(between), segment, s, {.number = 0});
    bcast_stage(sequence, inner, segment, s, {.number = 1, .levels_above = levels_between});
  }
  return finish(std::move(sequence), team, what);
}

}  // namespace penstock::collectives
