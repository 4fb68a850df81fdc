// Trees on a node with several domains, and among leaders.
#include "collectives/parts/group.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <vector>

namespace penstock::collectives {
namespace {

/// The trees of all ranks on rank 0's node. `root` is their root.
std::map<int, Tree> trees(Team team, int root) {
  std::map<int, Tree> of_rank;
  for (team.rank = 0; team.rank < team.size(); ++team.rank)
    if (team.same_node(team.rank, 0)) of_rank[team.rank] = tree_of_node(team, node_group(team, root));
  return of_rank;
}

const Team kTwoNodes{.node_of_rank = {0, 0, 1, 0, 0, 0, 0, 0, 1}, .domain_of_rank = {0, 1, 5, 2, 0, 1, 2, 0, 5}};

TEST(TreesOfNodes, AreTreesForEveryRoot) {
  for (const int root : {0, 1, 3, 4, 5, 6, 7}) {
    const std::map<int, Tree> of_rank = trees(kTwoNodes, root);
    std::set<int> reached{root};
    for (const auto& [rank, tree] : of_rank)
      for (const Tree::Edge& child : tree.children) {
        EXPECT_TRUE(reached.insert(child.rank).second) << "rank " << child.rank << " has two parents";
        EXPECT_EQ(of_rank.at(child.rank).parent, rank);
        EXPECT_EQ(of_rank.at(child.rank).parent_level, child.level);
        EXPECT_GT(child.level, tree.parent_level);
        EXPECT_LE(child.level, levels_of_nodes(kTwoNodes));
      }
    EXPECT_EQ(reached, (std::set<int>{0, 1, 3, 4, 5, 6, 7}));
    EXPECT_EQ(of_rank.at(root).parent, -1);
  }
}

TEST(TreesOfNodes, EnterEveryDomainOnce) {
  for (const int root : {0, 3, 5}) {
    std::map<int, int> entries;
    for (const auto& [rank, tree] : trees(kTwoNodes, root)) {
      const auto domain = [](int of) { return kTwoNodes.domain_of_rank[static_cast<std::size_t>(of)]; };
      if (tree.parent >= 0 && domain(rank) != domain(tree.parent)) ++entries[domain(rank)];
    }
    EXPECT_EQ(entries.size(), 2);
    for (const auto& [domain, count] : entries) EXPECT_EQ(count, 1) << "domain " << domain;
  }
}

TEST(TreesOfNodes, AreBinomialWithoutDomains) {
  Team team = kTwoNodes;
  team.domain_of_rank.clear();
  EXPECT_EQ(levels_of_nodes(team), 3);
  for (const auto& [rank, tree] : trees(team, 3)) {
    team.rank = rank;
    const Tree expected = binomial(node_group(team, 3));
    EXPECT_EQ(tree.parent, expected.parent);
    EXPECT_EQ(tree.children.size(), expected.children.size());
  }
}

TEST(Trees, OfThePostalModelReachAllRanksInTime) {
  for (const int size : {1, 2, 3, 5, 6, 7, 17, 64, 100, 128}) {
    Group group;
    for (int rank = 0; rank < size; ++rank) group.ranks.push_back(10 + rank);
    std::vector<std::size_t> time(static_cast<std::size_t>(size));  // parents have lower indices
    std::size_t reached = 1;
    for (group.self = 0; group.self < size; ++group.self) {
      const Tree tree = postal(group);
      std::size_t sends = 0;
      for (const Tree::Edge& child : tree.children) {
        ++reached;
        time[static_cast<std::size_t>(child.first)] = time[static_cast<std::size_t>(group.self)] + sends++ + kPostalHop;
        Group of_child = group;
        of_child.self = child.first;
        EXPECT_EQ(child.rank, group[child.first]);
        EXPECT_EQ(postal(of_child).parent, group[group.self]);
        EXPECT_EQ(postal(of_child).count, child.count);
      }
      if (group.self == 0) EXPECT_EQ(tree.parent, -1);
    }
    EXPECT_EQ(reached, static_cast<std::size_t>(size));
    EXPECT_EQ(std::ranges::max(time), size == 1 ? 0 : postal_time(size));
    EXPECT_GE(postal_reach(postal_time(size)), size);
  }
}

TEST(Radices, AreOfTheFewestRoundsAndNearlyEqual) {
  for (int size = 1; size <= 300; ++size)
    for (const int radix : {2, 3, 4, 5, 7, 16, 1000}) {
      const std::vector<int> radices = radices_of(size, radix);
      std::int64_t product = 1;
      for (const int each : radices) product *= each;
      std::int64_t fewer = 1;
      for (std::size_t i = 1; i < radices.size(); ++i) fewer *= radix;
      const std::string what = std::to_string(size) + " ranks, radix " + std::to_string(radix);
      EXPECT_GE(product, size) << what;
      EXPECT_TRUE(radices.empty() ? size == 1 : fewer < size) << what;
      if (radices.empty()) continue;
      EXPECT_TRUE(std::ranges::is_sorted(radices)) << what;
      EXPECT_LE(radices.back(), std::min(radix, size)) << what;
      EXPECT_LE(radices.back() - radices.front(), 1) << what;
      EXPECT_LT(product / radices.back() * (radices.back() - 1), size) << what << ": one less is too few";
    }
}

}  // namespace
}  // namespace penstock::collectives
