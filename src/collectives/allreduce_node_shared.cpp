// Inside each node sums and copies of segments are tasks that any of its cores may take, so that one core of
// communication serves all ranks of a node; between the leaders reduction and broadcast run along one binomial tree.
// Cost: 2n moves per segment inside a node of n ranks, 2 * ceil(log2 nodes) rounds between nodes. Valid on several
// nodes with single copy.
#include <optional>

#include "collectives/node_tasks.hpp"

namespace penstock::collectives {

namespace {
constexpr std::uint64_t kSegmentBytes = 256 << 10;
}

Plan allreduce_node_shared(const Team& team, const Collective& what) {
  const Group between = leaders(team, 0);
  const Group node = node_group(team, 0);
  const Segments segments(what, kSegmentBytes, kMaxNodeSegments);
  const Region own = contribution(team, what);
  const Region target = result(team, what);
  Sequence sequence("allreduce/node_shared", team);
  std::optional<Tree> tree;
  std::optional<ReduceStage> up;
  if (between.contains_self()) {
    tree = binomial(between);
    up.emplace(sequence, *tree, segments, StageId{.number = 0});
  }
  for (std::uint32_t s = 0; s < segments.count(); ++s) {
    const Region into = segments.of(target, s);
    combine_on_node(sequence, node, what, segments.of(own, s), into, s);
    if (tree) {
      const Region sum = up->run(s, node.size() > 1 ? into : segments.of(own, s), into);
      if (tree->parent < 0) sequence.copy(sum, into);
      bcast_stage(sequence, *tree, into, s, {.number = 1});
    }
    spread_on_node(sequence, node, what, into, s);
  }
  return finish(std::move(sequence), team, what);
}

}  // namespace penstock::collectives
