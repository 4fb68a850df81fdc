// The mirror of gather_tree: a rank's own block comes from its parent directly, those of its subtree to where its
// children take them.
// Cost: m * n / 2 * log_k(n) bytes at most, in ceil(log_k n) levels. Valid on one node.
#include <array>

#include "collectives/node_tasks.hpp"

namespace penstock::collectives {

Plan scatter_tree(const Team& team, const Collective& what) {
  const std::uint64_t bytes = block_bytes(what);
  const std::vector<int> ranks = from_root(team, what);
  const Region all{0, bytes * static_cast<std::uint64_t>(team.size()), Buffer::input};
  Sequence sequence("scatter/tree", team);
  sequence.tree_levels(levels(team.size(), what.radix));
  GrowingTasks tasks(sequence, team.size());
  for (const Edge& edge : edges(team.size(), what.radix)) {
    const int parent = ranks[static_cast<std::size_t>(edge.parent)];
    const int child = ranks[static_cast<std::size_t>(edge.child)];
    if (child == team.rank && edge.count > 1) sequence.scratch(static_cast<std::uint64_t>(edge.count - 1) * bytes);
    const auto move = [&](Region to, Run indices) {
      Region from{static_cast<std::uint64_t>(indices.first - edge.parent - 1) * bytes, to.size_bytes, Buffer::scratch};
      if (edge.parent == 0)
        from = blocks_of(all, what, {ranks[static_cast<std::size_t>(indices.first)], indices.count});
      tasks.add(edge.level, 0, edge.parent, edge.child, std::array{RankRegion{from, parent}}, {to, child});
    };
    move({0, bytes, Buffer::output}, {edge.child, 1});
    int first = edge.child + 1;
    const int end = edge.child + edge.count;
    const int wrap = edge.parent == 0 ? team.size() - what.root : end;
    while (first < end) {
      const int next = first < wrap ? std::min(end, wrap) : end;
      const auto before = static_cast<std::uint64_t>(first - edge.child - 1) * bytes;
      move({before, static_cast<std::uint64_t>(next - first) * bytes, Buffer::scratch}, {first, next - first});
      first = next;
    }
  }
  if (bytes > 0)
    sequence.task({}, std::array{RankRegion{block_of(all, what, what.root), what.root}},
                  std::array{RankRegion{{0, bytes, Buffer::output}, what.root}});
  sequence.share();
  return finish(std::move(sequence), team, what);
}

}  // namespace penstock::collectives
