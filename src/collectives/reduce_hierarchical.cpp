// Reduction inside each node to its leader, then between the leaders, both along binomial trees (paper 001, section
// III-B: the tasks sr, irsr and ir). A leader combines a segment of its node while the one before travels.
// Cost: ceil(log2 ranks) rounds inside the nodes, ceil(log2 nodes) between. Valid for every team and size.
#include <optional>

#include "collectives/stage.hpp"

namespace penstock::collectives {

namespace {
constexpr std::uint64_t kSegmentBytes = 128 << 10;
}

Plan reduce_hierarchical(const Team& team, const Collective& what) {
  const Group between = leaders(team, what.root);
  const int levels_between = log2_ceil(between.size());
  const Segments segments(what, kSegmentBytes, kMaxTreeSegments);
  const Region own = contribution(team, what);
  const Region target = result(team, what);
  const bool is_root = team.rank == what.root;
  Sequence sequence("reduce/hierarchical", team);
  sequence.tree_levels(levels_between + log2_ceil(largest_node(team)));
  ReduceStage inside(sequence, binomial(node_group(team, what.root)), segments,
                     {.number = 1, .levels_above = levels_between});
  std::optional<ReduceStage> outside;
  if (between.contains_self()) outside.emplace(sequence, binomial(between), segments, StageId{.number = 0});
  for (std::uint32_t s = 0; s < segments.count(); ++s) {
    const Region into = is_root ? segments.of(target, s) : Region{};
    Region sum = inside.run(s, segments.of(own, s), into);
    if (outside) sum = outside->run(s, sum, into);
    if (is_root) sequence.copy(sum, into);
  }
  return finish(std::move(sequence), team, what);
}

}  // namespace penstock::collectives
