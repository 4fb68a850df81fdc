#include "collectives/parts/group.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>

namespace penstock::collectives {
namespace {

int node_of(const Team& team, int rank) { return team.node_of_rank[static_cast<std::size_t>(rank)]; }

void find_self(Group& group, int rank) {
  const auto it = std::find(group.ranks.begin(), group.ranks.end(), rank);
  group.self = it == group.ranks.end() ? -1 : static_cast<int>(it - group.ranks.begin());
}

}  // namespace

std::vector<std::vector<int>> ranks_by_node(const Team& team, int first) {
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

Group slot_group(const std::vector<std::vector<int>>& by_node, std::size_t slot, int self) {
  Group group;
  for (const std::vector<int>& ranks : by_node) group.ranks.push_back(ranks[slot]);
  find_self(group, self);
  return group;
}

int node_count(const Team& team) {
  return team.size() == 0 ? 0 : *std::max_element(team.node_of_rank.begin(), team.node_of_rank.end()) + 1;
}

std::vector<int> sizes_of_nodes(const Team& team) {
  std::vector<int> sizes(static_cast<std::size_t>(node_count(team)));
  // Most ranks follow one of their node.
  for (auto first = team.node_of_rank.begin(); first != team.node_of_rank.end();) {
    const auto end = std::find_if(first, team.node_of_rank.end(), [&](std::int32_t node) { return node != *first; });
    sizes[static_cast<std::size_t>(*first)] += static_cast<int>(end - first);
    first = end;
  }
  return sizes;
}

int largest_node(const Team& team) {
  const std::vector<int> sizes = sizes_of_nodes(team);
  return sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end());
}

Group by_node(const Team& team, int first) {
  Group group;
  group.ranks.reserve(static_cast<std::size_t>(team.size()));
  for (const std::vector<int>& ranks : ranks_by_node(team, first))
    group.ranks.insert(group.ranks.end(), ranks.begin(), ranks.end());
  find_self(group, team.rank);
  return group;
}

Group leaders(const Team& team, int first) {
  Group group;
  for (const std::vector<int>& ranks : ranks_by_node(team, first)) group.ranks.push_back(ranks.front());
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

std::vector<int> radices_of(int size, int radix) {
  if (size <= 1) return {};
  radix = std::min(radix, size);
  std::size_t rounds = 0;
  for (std::int64_t reached = 1; reached < size; reached *= radix) ++rounds;
  std::vector<int> radices(rounds, radix);
  const auto reaches = [&] {
    std::int64_t reached = 1;
    for (const int each : radices) reached = std::min<std::int64_t>(size, reached * each);
    return reached >= size;
  };
  while (reaches())
    for (int& each : radices) {
      --each;
      if (reaches()) continue;
      ++each;
      return radices;
    }
  return radices;
}

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

namespace {

/// The ranks of `node` by domain, in the order in which the domains appear.
std::vector<Group> domains_of(const Team& team, const Group& node) {
  std::vector<Group> domains;
  std::vector<std::int32_t> known;
  for (const int rank : node.ranks) {
    const std::int32_t domain = team.domain_of_rank[static_cast<std::size_t>(rank)];
    const auto at = static_cast<std::size_t>(std::find(known.begin(), known.end(), domain) - known.begin());
    if (at == known.size()) {
      known.push_back(domain);
      domains.emplace_back();
    }
    domains[at].ranks.push_back(rank);
  }
  for (Group& domain : domains) find_self(domain, team.rank);
  return domains;
}

}  // namespace

Tree tree_of_node(const Team& team, const Group& node) {
  if (team.domain_of_rank.empty()) return binomial(node);
  const std::vector<Group> domains = domains_of(team, node);
  Group firsts;
  for (const Group& domain : domains) firsts.ranks.push_back(domain[0]);
  find_self(firsts, team.rank);
  const auto own = std::find_if(domains.begin(), domains.end(), [](const Group& each) { return each.contains_self(); });
  Tree tree = binomial(*own);
  const int levels_above = log2_ceil(firsts.size());
  tree.levels += levels_above;
  for (Tree::Edge& child : tree.children) child.level += levels_above;
  if (!firsts.contains_self()) {
    tree.parent_level += levels_above;
    return tree;
  }
  const Tree above = binomial(firsts);
  tree.parent = above.parent;
  tree.parent_level = above.parent_level;
  tree.children.insert(tree.children.begin(), above.children.begin(), above.children.end());
  return tree;
}

int levels_of_nodes(const Team& team) {
  if (team.domain_of_rank.empty()) return log2_ceil(largest_node(team));
  int most = 0;
  for (const std::vector<int>& ranks : ranks_by_node(team, 0)) {
    const std::vector<Group> domains = domains_of(team, {ranks});
    int largest = 0;
    for (const Group& domain : domains) largest = std::max(largest, domain.size());
    most = std::max(most, log2_ceil(static_cast<int>(domains.size())) + log2_ceil(largest));
  }
  return most;
}

ExtraRanks::ExtraRanks(int size)
    : full(static_cast<int>(std::bit_floor(static_cast<unsigned>(size)))), extra(size - full) {}

namespace {

constexpr auto kPostalReach = [] {
  std::array<int, 79> reach{};
  for (std::size_t time = 0; time < reach.size(); ++time)
    reach[time] = time < kPostalHop ? 1 : reach[time - 1] + reach[time - kPostalHop];
  return reach;
}();

}  // namespace

std::size_t postal_time(int size) {
  return static_cast<std::size_t>(std::ranges::lower_bound(kPostalReach, size) - kPostalReach.begin());
}
int postal_reach(std::size_t time) { return kPostalReach[time]; }
int first_of_postal(int size) { return std::min(postal_reach(postal_time(size) - kPostalHop), size - 1); }

Tree postal(const Group& group) {
  Tree tree;
  int first = 0;
  int size = group.size();
  while (first != group.self) {
    const int below = first_of_postal(size);
    size -= below;
    if (group.self < first + size) continue;
    tree.parent = group[first];
    first += size;
    size = below;
  }
  tree.count = size;
  while (size > 1) {
    const int below = first_of_postal(size);
    size -= below;
    tree.children.push_back({group[first + size], 0, first + size, below});
  }
  return tree;
}

Tree binary(const Group& group) {
  Tree tree;
  const int self = group.self;
  if (self > 0) tree.parent = group[(self - 1) / 2];
  for (int child = 2 * self + 1; child <= 2 * self + 2 && child < group.size(); ++child)
    tree.children.push_back({group[child], 0, child, 1});
  return tree;
}

Tree two_tree(const Group& group, int which) {
  // In-order tree over the indices 1 .. last: the height of v is the position of its lowest bit, so odd indices are
  // leaves. The other tree shifts the indices by one or reverses them, so that odd indices become even ones.
  const int last = group.size() - 1;
  const auto place = [&](int index) {
    if (which == 0 || index == 0) return index;
    return last % 2 == 0 ? last + 1 - index : index % last + 1;
  };
  const auto index_at = [&](int at) {
    if (which == 0 || at == 0) return at;
    return last % 2 == 0 ? last + 1 - at : (at + last - 2) % last + 1;
  };
  Tree tree;
  const int self = place(group.self);
  const auto add_child = [&](int child) {
    if (child > 0 && child <= last) tree.children.push_back({group[index_at(child)], 0, index_at(child), 1});
  };
  if (self == 0) {
    if (last > 0) add_child(static_cast<int>(std::bit_floor(static_cast<unsigned>(last))));
    return tree;
  }
  const int bit = self & -self;
  const int up = (self ^ bit) | (bit << 1);
  tree.parent = group[index_at(up <= last ? up : self ^ bit)];
  add_child(bit > 1 ? self - bit / 2 : 0);
  int below = bit / 2;
  while (below > 0 && self + below > last) below /= 2;
  if (below > 0) add_child(self + below);
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
