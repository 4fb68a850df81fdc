// Gather along a k-nomial tree whose edges are tasks that any core of the node may take; split by level between the
// cores of communication and those of the application (paper 000, the variant with growing buffers). A rank's own block
// goes to its parent directly, those of its subtree from where they were gathered: no block is copied inside a rank.
// Cost: m * n / 2 * log_k(n) bytes at most, in ceil(log_k n) levels. Valid on one node.
#include <array>
#include <ranges>

#include "collectives/node_tasks.hpp"

namespace penstock::collectives {

Plan gather_tree(const Team& team, const Collective& what) {
  const std::uint64_t bytes = block_bytes(what);
  const std::vector<int> ranks = from_root(team, what);
  const Region all{0, bytes * static_cast<std::uint64_t>(team.size()), Buffer::output};
  Sequence sequence("gather/tree", team);
  sequence.tree_levels(levels(team.size(), what.radix));
  GrowingTasks tasks(sequence, team.size());
  for (const Edge& edge : edges(team.size(), what.radix) | std::views::reverse) {
    const int parent = ranks[static_cast<std::size_t>(edge.parent)];
    const int child = ranks[static_cast<std::size_t>(edge.child)];
    if (child == team.rank && edge.count > 1) sequence.scratch(static_cast<std::uint64_t>(edge.count - 1) * bytes);
    // Scratch of index v holds the blocks of the indices [v + 1, v + count).
    const auto move = [&](Region from, Run indices) {
      Region to{static_cast<std::uint64_t>(indices.first - edge.parent - 1) * bytes, from.size_bytes, Buffer::scratch};
      if (edge.parent == 0) to = blocks_of(all, what, {ranks[static_cast<std::size_t>(indices.first)], indices.count});
      tasks.add(edge.level, 0, edge.child, edge.parent, std::array{RankRegion{from, child}}, {to, parent});
    };
    move({0, bytes, Buffer::input}, {edge.child, 1});
    int first = edge.child + 1;
    const int end = edge.child + edge.count;
    // The ranks wrap around once; at the root their blocks lie in the order of the ranks.
    const int wrap = edge.parent == 0 ? team.size() - what.root : end;
    while (first < end) {
      const int next = first < wrap ? std::min(end, wrap) : end;
      const auto before = static_cast<std::uint64_t>(first - edge.child - 1) * bytes;
      move({before, static_cast<std::uint64_t>(next - first) * bytes, Buffer::scratch}, {first, next - first});
      first = next;
    }
  }
  if (bytes > 0)
    sequence.task({}, std::array{RankRegion{{0, bytes, Buffer::input}, what.root}},
                  std::array{RankRegion{block_of(all, what, what.root), what.root}});
  sequence.share();
  return finish(std::move(sequence), team, what);
}

}  // namespace penstock::collectives
