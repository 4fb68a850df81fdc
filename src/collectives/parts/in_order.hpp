// Reductions in the order of the ranks, for operations that do not commute.
#pragma once

#include <cstdint>
#include <functional>

#include "collectives/parts/stage.hpp"

namespace penstock::collectives {

/// A binomial tree over the ranks in their order, rooted at rank 0: the subtree of a rank holds the ranks that follow
/// it.
Tree tree_in_order(const Team& team);

/// Combines a segment after the other of what the ranks of tree_in_order() contribute, lower ranks on the left.
class OrderedStage {
 public:
  OrderedStage(Sequence& sequence, const Tree& tree, const Segments& segments, StageId stage);
  /// Where the sum over this rank's subtree lies: in `own` if it has no children.
  Region run(std::uint32_t segment, Region own);

 private:
  Sequence& sequence_;
  Tree tree_;
  StageId stage_;
  std::uint32_t in_flight_;
  std::uint64_t slot_bytes_;
  Region scratch_;
};

}  // namespace penstock::collectives
