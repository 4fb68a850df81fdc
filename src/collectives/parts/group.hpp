// Ordered groups of ranks, and trees over them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "penstock/plan.hpp"

namespace penstock::collectives {

/// The ranks that take part in a stage, in the order in which the algorithm numbers them.
struct Group {
  std::vector<int> ranks;
  int self = -1;  ///< this rank's index; -1 if it does not take part

  int size() const { return static_cast<int>(ranks.size()); }
  bool contains_self() const { return self >= 0; }
  int operator[](int index) const { return ranks[static_cast<std::size_t>(index)]; }
};

/// All ranks, node by node, `first` and its node first. Trees and rings over this order cross between nodes as rarely
/// as possible, for any placement of the ranks.
Group by_node(const Team& team, int first);
/// One leader per node: `first` for its node, which comes first, and the lowest rank for the others.
Group leaders(const Team& team, int first);
/// The ranks of this rank's node, its leader first.
Group node_group(const Team& team, int first);
/// The number of ranks of each node.
std::vector<int> sizes_of_nodes(const Team& team);
/// The largest number of ranks on a node.
int largest_node(const Team& team);
int node_count(const Team& team);

/// The ranks of each node, leaders first. The node of `first` comes first, the others follow in cyclic order.
std::vector<std::vector<int>> ranks_by_node(const Team& team, int first);
/// The rank at index `slot` of each node.
Group slot_group(const std::vector<std::vector<int>>& by_node, std::size_t slot, int self);

/// For algorithms that need a power of two of ranks. Of the positions 0 .. 2*extra-1 the even ones first send their
/// data to their odd neighbour and leave; all other positions are kept. `kept_index` numbers the kept positions.
struct ExtraRanks {
  int full;   ///< the number of kept positions, a power of two
  int extra;  ///< the number of positions that leave

  explicit ExtraRanks(int size);
  bool leaves(int position) const { return position < 2 * extra && position % 2 == 0; }
  bool absorbs(int position) const { return position < 2 * extra && position % 2 == 1; }
  int kept_index(int position) const { return position < 2 * extra ? position / 2 : position - extra; }
  int position(int kept_index) const { return kept_index < extra ? 2 * kept_index + 1 : kept_index + extra; }
};

/// ceil(log2(size)): rounds of a binomial tree or of recursive doubling.
int log2_ceil(int size);

/// Of the rounds of an exchange among `size` ranks: as few as with `radix` in each, ceil(log_radix(size)), and as equal
/// as possible, the largest last. Their product is `size` or more.
std::vector<int> radices_of(int size, int radix);

/// A tree over a group, as one of its ranks sees it.
struct Tree {
  struct Edge {
    int rank;
    int level;  ///< 1 next to the root
    int first;  ///< the child's subtree has the indices [first, first + count) of the group
    int count;
  };
  int parent = -1;  ///< a rank; -1 at the root
  int parent_level = 0;
  int count = 1;               ///< indices [group.self, group.self + count) are this rank's subtree
  int levels = 0;              ///< height of the whole tree
  std::vector<Edge> children;  ///< largest subtree first
};

/// A tree over this rank's node, rooted at the first rank of `node`. If the node has one domain it is binomial. If it
/// has several (Team::domain_of_rank), a tree over one rank per domain, with a tree inside each domain below it: data
/// enters each domain once. Subtrees are then not ranges of indices of `node`.
Tree tree_of_node(const Team& team, const Group& node);
/// The height of the highest tree_of_node in the team.
int levels_of_nodes(const Team& team);

/// Index 0 is the root; the parent of v is v - 2^b, where b is its lowest set bit. Every subtree is a range of indices.
Tree binomial(const Group& group);
/// For short messages, of which several are on their way from a rank at once: the tree of the postal model (Bar-Noy and
/// Kipnis 1994) if a message takes as long as it takes to send five. Every subtree is a range of indices.
Tree postal(const Group& group);
inline constexpr std::size_t kPostalHop = 5;  // four to nine on networks of today; within a tenth of the best on all
/// When the last of `size` ranks has the message, in units of a send, and how many ranks can have it at this time.
std::size_t postal_time(int size);
int postal_reach(std::size_t time);
/// Of a subtree of postal() with `size` > 1 ranks: how many of them are at and below the first child of its root.
/// Without them it is the tree of the others.
int first_of_postal(int size);
/// The parent of v is (v - 1) / 2. Tree::levels is 0 for this and the following trees: a split tree (split-tree
/// paper) needs subtrees that are ranges of indices.
Tree binary(const Group& group);
/// One of two binary trees (`which` is 0 or 1) below the root, index 0. A rank that has children in one tree is a leaf
/// of the other. With half of the data along each tree, every rank but the root receives and sends the data once
/// (Sanders, Speck and Träff 2009).
Tree two_tree(const Group& group, int which);
/// The parent of v is v - 1.
Tree chain(const Group& group);

}  // namespace penstock::collectives
