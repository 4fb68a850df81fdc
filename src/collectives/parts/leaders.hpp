// Hierarchical collectives that are not pipelines of segments: combine inside the nodes, exchange between leaders of
// the nodes, spread inside the nodes.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/parts/exchange.hpp"
#include "collectives/parts/node_tasks.hpp"

namespace penstock::collectives {

inline constexpr std::uint64_t kLeaderBatchBytes = 256 << 10;  // of a part, of data longer than kTaskBytes
inline constexpr std::size_t kRingSlots = 4;                   // of multi_leader
inline constexpr std::size_t kManySlots = 16;  // with more, messages inside a node are too short and too many

/// Tasks of a batch, of all slots together, so that a plan has no more than the engine accepts.
inline constexpr std::uint64_t kMaxBatchTasks = kMaxTasks / kMaxTaskGroups;
/// How data that tasks combine and spread is cut: into parts of some batches each.
struct TaskBatches {
  std::uint32_t cuts = 1;
  std::uint32_t subs = 1;
  bool follow_ring = false;  ///< they are the parts of a ring of the leaders
};
/// How many batches are combined before a ring needs them. With more, the cores would combine while the first ones
/// could be sent already.
inline constexpr std::uint64_t kBatchesAhead = 2;
/// `sides`: see Leaders.
TaskBatches task_batches(std::uint64_t slot_bytes, std::uint64_t nodes, std::uint32_t sides);

/// Into how many chunks `multi_leader_pipeline` cuts the data: of collective.segment_bytes, or by default of so many
/// bytes for each of kManySlots slots that messages are long.
std::uint64_t chunks_of(const Team& team, const Collective& collective);
/// The same of a team whose smallest node has so many ranks.
std::uint64_t chunks_of(const Collective& collective, int smallest);

/// Divides the buffer into `slots` parts. The rank at index j of each node leads part j.
class Leaders {
 public:
  /// `team` must outlive it. There are at most `most_slots` slots, and at most as many as the smallest node has ranks.
  /// `first` leads its node. `sides`: 2 for an operation that both combines and spreads, otherwise 1. `by_messages`:
  /// inside the nodes, for data of any length. `first_segment`: those of earlier data in the same plan come before it.
  Leaders(Sequence& sequence, const Team& team, const Collective& collective, int first, std::size_t most_slots,
          std::uint32_t sides, bool by_messages = false, std::uint32_t first_segment = 0);

  std::uint32_t segments() const { return cuts_ * subs_; }
  std::size_t slots() const { return slots_; }
  bool has_slot(std::size_t slot) const { return node_.self == static_cast<int>(slot); }
  bool by_tasks() const { return by_tasks_; }
  /// Segment length of the exchange, so that it overlaps with the work inside the nodes; 0: the exchange's default.
  std::uint64_t segment_bytes() const;
  bool is_alone() const { return node_.size() == 1; }
  /// The leaders of this slot, the node of `first` first.
  Group group(std::size_t slot) const { return slot_group(by_node_, slot, node_[node_.self]); }
  Region part(Region whole, std::size_t slot) const;

  /// Combines each part of `own` of all ranks of the node into `into` of the part's leader. `into` is the same region
  /// on all ranks of the node. Does nothing if the node has one rank.
  void combine(Region own, Region into);
  /// The same in batches. prepare() (see Exchange) writes the batch that the exchange needs next, combine_rest() the
  /// remaining ones.
  void combine_later(Region own, Region into);
  void prepare(Region used, StepId sent);
  void combine_rest();
  /// Copies each part of `data` from its leader to all ranks of the node.
  void spread(Region data);

 private:
  Region piece(Region whole, std::size_t slot, std::uint32_t batch) const;
  Tree tree(std::size_t slot) const;
  void combine_next(StepId after);

  Sequence& sequence_;
  const Team& team_;
  Collective collective_;
  std::vector<std::vector<int>> by_node_;
  Group node_;
  std::uint32_t first_segment_ = 0;
  std::size_t slots_ = 1;
  bool by_tasks_ = false;
  bool follows_ring_ = false;
  // A slot's part of the data is cut into `cuts_` parts of `subs_` batches each.
  std::uint32_t cuts_ = 1;
  std::uint32_t subs_ = 1;
  std::vector<std::uint32_t> to_combine_;  ///< batches, in the order in which the exchange needs them
  std::vector<std::uint32_t> to_spread_;   ///< batches, in the order in which the exchange completes them
  Region own_;
  Region into_;
  std::size_t combined_ = 0;  ///< of to_combine_
};

}  // namespace penstock::collectives
