// Orders of ranks, and trees over them.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/plan.hpp"

namespace penstock::collectives {

/// The ranks of a team that take part in a stage, in the order in which an algorithm numbers them.
struct Group {
  std::vector<int> ranks;
  int self = -1;  ///< this rank's index; -1 if it does not take part

  int size() const { return static_cast<int>(ranks.size()); }
  bool contains_self() const { return self >= 0; }
  int operator[](int index) const { return ranks[static_cast<std::size_t>(index)]; }
};

/// All ranks, node by node: `first`, the other ranks of its node, then those of the next nodes. Trees and rings over
/// this order cross between nodes as rarely as they can, however the ranks are placed.
Group by_node(const Team& team, int first);
/// The leaders of all nodes: `first` for its node (which comes first), the lowest rank for the others.
Group leaders(const Team& team, int first);
/// The ranks of this rank's node, its leader first.
Group node_group(const Team& team, int first);
/// The most ranks that any node has, and the number of nodes.
int largest_node(const Team& team);
int node_count(const Team& team);

/// The ranks of each node: the node of `first`, which leads it, comes first, then the others in cyclic order.
std::vector<std::vector<int>> ranks_by_node(const Team& team, int first);
/// Of each of `by_node` the rank at `slot`.
Group slot_group(const std::vector<std::vector<int>>& by_node, std::size_t slot, int self);

/// Ranks beyond the largest power of two give what they have to a neighbour first: of the positions 0 .. 2*extra-1 the
/// even ones leave, the odd ones stay; the others stay as they are. `kept_index` numbers those that stay.
struct ExtraRanks {
  int full;  ///< how many stay
  int extra;

  explicit ExtraRanks(int size);
  bool leaves(int position) const { return position < 2 * extra && position % 2 == 0; }
  bool absorbs(int position) const { return position < 2 * extra && position % 2 == 1; }
  int kept_index(int position) const { return position < 2 * extra ? position / 2 : position - extra; }
  int position(int kept_index) const { return kept_index < extra ? 2 * kept_index + 1 : kept_index + extra; }
};

/// ceil(log2(size)): rounds of a binomial tree or of recursive doubling.
int log2_ceil(int size);

/// A rank's place in a tree over a group.
struct Tree {
  struct Edge {
    int rank;
    int level;  ///< 1 next to the root
    int first;  ///< the child's subtree holds the indices [first, first + count) of the group
    int count;
  };
  int parent = -1;  ///< a rank; -1 at the root
  int parent_level = 0;
  int count = 1;               ///< indices [group.self, group.self + count) are this rank's subtree
  int levels = 0;              ///< height of the whole tree
  std::vector<Edge> children;  ///< largest subtree first
};

/// A tree over this rank's node, whose root is the first of `node`: binomial, or where the node has several domains
/// (Team::domain_of_rank) one between a rank of each, and one inside each of these, so that data goes from domain to
/// domain once. A subtree is no range of indices of `node` then.
Tree tree_of_node(const Team& team, const Group& node);
/// The height of the highest tree_of_node in the team.
int levels_of_nodes(const Team& team);

/// Index 0 is the root; index v has the parent v - 2^b, b its lowest set bit. Every subtree is a contiguous range.
Tree binomial(const Group& group);
/// Index v has the parent (v - 1) / 2. Its levels are not counted, as those of the following: a split tree (paper 000)
/// needs a narrow and a wide end of contiguous subtrees.
Tree binary(const Group& group);
/// One of two binary trees (`which` is 0 or 1) below the root, index 0: whoever has children in one is a leaf of the
/// other, so that with half of the data along each every rank but the root receives and sends it once (Sanders, Speck
/// and Träff 2009).
Tree two_tree(const Group& group, int which);
/// Index v has the parent v - 1.
Tree chain(const Group& group);

}  // namespace penstock::collectives
