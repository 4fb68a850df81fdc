// Collectives that work inside the nodes, then among ranks of all nodes, then inside the nodes again, on buffers that
// are not a pipeline of segments: between the nodes every part of the data takes a way of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/parts/exchange.hpp"
#include "collectives/parts/node_tasks.hpp"

namespace penstock::collectives {

/// Who leads what. The buffer is cut into `slots` parts; part j of a node's data is led by the rank at slot j of its
/// node.
class Leaders {
 public:
  /// `team` is kept as a reference. `most_slots` is held down to what the smallest node has; `first` leads its node.
  /// `sides`: 2 for an operation that both combines and spreads.
  Leaders(Sequence& sequence, const Team& team, const Collective& collective, int first, std::size_t most_slots,
          std::uint32_t sides);

  std::size_t slots() const { return slots_; }
  bool has_slot(std::size_t slot) const { return node_.self == static_cast<int>(slot); }
  bool by_tasks() const { return by_tasks_; }
  /// For the exchange, so that it overlaps with what goes on inside the nodes; 0: its own.
  std::uint64_t segment_bytes() const;
  bool is_alone() const { return node_.size() == 1; }
  /// The ranks at this slot of all nodes, beginning with the node of `first`.
  Group group(std::size_t slot) const { return slot_group(by_node_, slot, node_[node_.self]); }
  Region part(Region whole, std::size_t slot) const;

  /// Every part of `own` of all ranks of the node is combined into `into` of its leader (the same region on all ranks
  /// of the node), unless that is alone.
  void combine(Region own, Region into);
  /// The same, a few batches at a time: prepare() (see Exchange) writes what the exchange between the leaders needs
  /// next, combine_rest() what is left.
  void combine_later(Region own, Region into);
  void prepare(Region used, StepId sent);
  void combine_rest();
  /// Every part of `data` goes from its leader to the node.
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
  std::size_t slots_ = 1;
  bool by_tasks_ = false;
  bool follows_ring_ = false;
  // A slot's part of the data is cut into `cuts_` parts of `subs_` batches each.
  std::uint32_t cuts_ = 1;
  std::uint32_t subs_ = 1;
  std::vector<std::uint32_t> to_combine_;  ///< batches, in the order in which they are needed
  std::vector<std::uint32_t> to_spread_;   ///< in the order in which they become ready
  Region own_;
  Region into_;
  std::size_t combined_ = 0;  ///< of to_combine_
};

}  // namespace penstock::collectives
