// Inside each node the sums of segments are tasks that any of its cores may take, so that one core of communication
// serves all ranks of a node; the leaders of the nodes then reduce along a binomial tree. Cost: n + 1 moves per segment
// inside a node of n ranks, ceil(log2 nodes) rounds between nodes. Valid on several nodes with single copy.
#include <optional>

#include "collectives/node_tasks.hpp"

namespace penstock::collectives {

namespace {
constexpr std::uint64_t kSegmentBytes = 256 << 10;
}

Plan reduce_node_shared(const Team& team, const Collective& what) {
  const Group between = leaders(team, what.root);
  const Group node = node_group(team, what.root);
  const Segments segments(what, kSegmentBytes, kMaxNodeSegments);
  const std::uint64_t bytes = block_bytes(what);
  const bool is_root = team.rank == what.root;
  Sequence sequence("reduce/node_shared", team);
  // The same on all ranks of the node: the root has room for the sum, another leader makes some.
  Region sum_of_node{0, bytes, node[0] == what.root ? Buffer::output : Buffer::scratch};
  if (node.self == 0 && !is_root && node.size() > 1) sequence.scratch(bytes);
  std::optional<ReduceStage> outside;
  if (between.contains_self()) outside.emplace(sequence, binomial(between), segments, StageId{});
  for (std::uint32_t s = 0; s < segments.count(); ++s) {
    combine_on_node(sequence, node, what, segments.of({0, bytes, Buffer::input}, s), segments.of(sum_of_node, s), s);
    if (!outside) continue;
    const Region own = segments.of(node.size() > 1 ? sum_of_node : contribution(team, what), s);
    const Region into = is_root ? segments.of(result(team, what), s) : Region{};
    const Region sum = outside->run(s, own, into);
    if (is_root) sequence.copy(sum, into);
  }
  return finish(std::move(sequence), team, what);
}

}  // namespace penstock::collectives
