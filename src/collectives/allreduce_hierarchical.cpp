// Reduction inside each node, reduction and broadcast between the leaders, broadcast inside each node, all along
// binomial trees and a segment apart (paper 001, section III-B: the tasks sr, ir, ib and sb and their overlaps).
// Cost: 2 * ceil(log2 nodes) rounds between nodes, 2 * ceil(log2 ranks) inside. Valid for every team and size.
#include <optional>

#include "collectives/stage.hpp"

namespace penstock::collectives {

namespace {
constexpr std::uint64_t kSegmentBytes = 128 << 10;
}

Plan allreduce_hierarchical(const Team& team, const Collective& what) {
  const Group between = leaders(team, 0);
  const Tree inner = binomial(node_group(team, 0));
  const int levels_between = log2_ceil(between.size());
  const Segments segments(what, kSegmentBytes, kMaxTreeSegments);
  const Region own = contribution(team, what);
  const Region target = result(team, what);
  Sequence sequence("allreduce/hierarchical", team);
  sequence.tree_levels(levels_between + log2_ceil(largest_node(team)));
  ReduceStage up_inside(sequence, inner, segments, {.number = 0, .levels_above = levels_between});
  std::optional<Tree> outer;
  std::optional<ReduceStage> up_outside;
  if (between.contains_self()) {
    outer = binomial(between);
    up_outside.emplace(sequence, *outer, segments, StageId{.number = 1});
  }
  for (std::uint32_t s = 0; s < segments.count(); ++s) {
    const Region into = segments.of(target, s);
    Region sum = up_inside.run(s, segments.of(own, s), into);
    if (outer) {
      sum = up_outside->run(s, sum, into);
      if (outer->parent < 0) sequence.copy(sum, into);
      bcast_stage(sequence, *outer, into, s, {.number = 2});
    }
    bcast_stage(sequence, inner, into, s, {.number = 3, .levels_above = levels_between});
  }
  return finish(std::move(sequence), team, what);
}

}  // namespace penstock::collectives
