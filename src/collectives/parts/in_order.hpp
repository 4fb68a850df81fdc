// Reductions in rank order, for operations that do not commute.
#pragma once

#include <cstdint>
#include <functional>

#include "collectives/parts/stage.hpp"

namespace penstock::collectives {

/// A binomial tree over the ranks in rank order, rooted at rank 0. A subtree has consecutive ranks, its root first.
Tree tree_in_order(const Team& team);

/// Combines the contributions of the ranks of tree_in_order(), segment by segment, lower ranks on the left.
class OrderedStage {
 public:
  OrderedStage(Sequence& sequence, const Tree& tree, const Segments& segments, StageId stage);
  /// Returns the sum over this rank's subtree; `own` if it has no children.
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
