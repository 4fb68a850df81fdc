// Building blocks for planners of tasks (SharedTask): any core of the node may move any rank's data.
#pragma once

#include <span>
#include <vector>

#include "collectives/parts/arguments.hpp"
#include "collectives/parts/group.hpp"
#include "collectives/parts/pieces.hpp"
#include "collectives/parts/stage.hpp"

namespace penstock::collectives {

// The largest number of tasks of one plan that the engine accepts.
inline constexpr std::uint32_t kMaxTasks = 1024;

/// shared_nodes() of a team with so many nodes, and so many ranks on the largest one.
bool shares_tasks(const Team& team, const Collective& collective, int nodes, int largest);

/// An edge of a k-nomial tree over the indices [0, size), 0 being the root.
struct Edge {
  int parent;
  int child;
  int level;  ///< 1 next to the root
  int count;  ///< the child's subtree has the indices [child, child + count)
};
/// ceil(log_radix(size)): levels of a k-nomial tree.
int levels(int size, int radix);
/// All edges, level by level from the root. At each level every rank that is in the tree gets radix - 1 children. Radix
/// 2 is the binomial tree of the split-tree paper, figure 1.
std::vector<Edge> edges(int size, int radix);

/// The ranks of a team on one node: the root of `collective` first, then the others in cyclic order.
Group from_root(const Team& team, const Collective& collective);

/// Segments for a plan of `tasks_per_segment` tasks each.
Segments task_segments(const Collective& collective, std::uint64_t default_bytes, int tasks_per_segment);

/// How many ranks a copy of one rank's block goes to: as many as wanted, or more if the tasks of all blocks would be
/// too many.
int targets_per_task(int size, int wanted);

/// The same region of each of `ranks`.
std::vector<RankRegion> of_each(std::span<const int> ranks, Region region);
/// All ranks of the team, ascending.
std::vector<int> everyone(const Team& team);

/// The part of a hierarchical plan inside a node, as tasks that a later publish_tasks() publishes. combine_on_node()
/// combines `from` of all ranks into `into` of the rank at `slot`; spread_on_node() copies `data` of that rank to the
/// others. The work is cut into at most `most_pieces` tasks, so that several cores take part. No tasks on a node of one
/// rank.
struct NodeWork {
  std::uint32_t segment = 0;
  std::size_t slot = 0;
  std::uint64_t most_pieces = 32;
};
/// Into how many tasks they cut `bytes` on a node of so many ranks.
std::uint64_t task_pieces(std::uint64_t bytes, std::uint64_t ranks, std::uint64_t most_pieces = NodeWork{}.most_pieces);
void combine_on_node(Sequence& sequence, const Group& node, const Collective& collective, Region from, Region into,
                     const NodeWork& work);
void spread_on_node(Sequence& sequence, const Group& node, const Collective& collective, Region data,
                    const NodeWork& work);
/// The same for other ranks and another place there.
void copy_on_node(Sequence& sequence, const Group& node, const Collective& collective, Region data,
                  std::span<const int> ranks, Region into, const NodeWork& work);
/// The largest number of publish_tasks steps of one plan that the engine accepts.
inline constexpr std::uint32_t kMaxTaskGroups = 64;

/// Tasks on one buffer of every rank that extend the data of each rank: a task on a rank's data waits for the previous
/// one.
class GrowingTasks {
 public:
  GrowingTasks(Sequence& sequence, int size) : sequence_(sequence), last_(static_cast<std::size_t>(size), kNone) {}

  /// Adds a task that reads the data of `from` (an index) and extends that of `to`.
  void add(int level, std::uint32_t segment, int from, int to, std::span<const RankRegion> sources, RankRegion target);

 private:
  static constexpr std::uint32_t kNone = SharedTask::kNone;
  Sequence& sequence_;
  std::vector<std::uint32_t> last_;  // by index
};

}  // namespace penstock::collectives
