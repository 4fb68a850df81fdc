#include "collectives/group.hpp"

#include <algorithm>
#include <bit>

namespace penstock::collectives {
namespace {

int node_of(const Team& team, int rank) { return team.node_of_rank[static_cast<std::size_t>(rank)]; }

void find_self(Group& group, int rank) {
  const auto it = std::find(group.ranks.begin(), group.ranks.end(), rank);
  group.self = it == group.ranks.end() ? -1 : static_cast<int>(it - group.ranks.begin());
}

// The ranks of each node, nodes and ranks cyclically renumbered so that the node of `first`, and in it `first`, lead.
std::vector<std::vector<int>> nodes(const Team& team, int first) {
  const int count = node_count(team);
  std::vector<std::vector<int>> ranks_of(static_cast<std::size_t>(count));
  for (int rank = 0; rank < team.size(); ++rank) {
    const int index = (node_of(team, rank) - node_of(team, first) + count) % count;
    ranks_of[static_cast<std::size_t>(index)].push_back(rank);
  }
  std::vector<int>& own = ranks_of[0];
  own.erase(std::find(own.begin(), own.end(), first));
  own.insert(own.begin(), first);
  return ranks_of;
}

}  // namespace

int node_count(const Team& team) {
  return team.size() == 0 ? 0 : *std::max_element(team.node_of_rank.begin(), team.node_of_rank.end()) + 1;
}

int largest_node(const Team& team) {
  std::vector<int> sizes(static_cast<std::size_t>(node_count(team)));
  for (const std::int32_t node : team.node_of_rank) ++sizes[static_cast<std::size_t>(node)];
  return sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end());
}

Group by_node(const Team& team, int first) {
  Group group;
  group.ranks.reserve(static_cast<std::size_t>(team.size()));
  for (const std::vector<int>& ranks : nodes(team, first))
    group.ranks.insert(group.ranks.end(), ranks.begin(), ranks.end());
  find_self(group, team.rank);
  return group;
}

Group leaders(const Team& team, int first) {
  Group group;
  for (const std::vector<int>& ranks : nodes(team, first)) group.ranks.push_back(ranks.front());
  find_self(group, team.rank);
  return group;
}

Group node_group(const Team& team, int first) {
  Group group;
  for (int rank = 0; rank < team.size(); ++rank)
    if (team.same_node(rank, team.rank) && rank != first) group.ranks.push_back(rank);
  if (team.same_node(first, team.rank)) group.ranks.insert(group.ranks.begin(), first);
  find_self(group, team.rank);
  return group;
}

int log2_ceil(int size) { return std::bit_width(static_cast<std::uint32_t>(size) - 1u); }

Tree binomial(const Group& group) {
  Tree tree;
  const int size = group.size();
  const int self = group.self;
  tree.levels = log2_ceil(size);
  const int bit = self == 0 ? tree.levels : std::countr_zero(static_cast<std::uint32_t>(self));
  tree.count = std::min(size - self, 1 << bit);
  if (self != 0) {
    tree.parent = group[self - (1 << bit)];
    tree.parent_level = tree.levels - bit;
  }
  for (int b = bit - 1; b >= 0; --b) {
    const int child = self + (1 << b);
    if (child < size) tree.children.push_back({group[child], tree.levels - b, child, std::min(1 << b, size - child)});
  }
  return tree;
}

Tree chain(const Group& group) {
  Tree tree;
  const int self = group.self;
  tree.count = group.size() - self;
  if (self > 0) tree.parent = group[self - 1];
  if (self + 1 < group.size()) tree.children.push_back({group[self + 1], 0, self + 1, tree.count - 1});
  return tree;
}

}  // namespace penstock::collectives
