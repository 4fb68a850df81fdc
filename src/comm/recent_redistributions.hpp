// The plans of past calls of start_redistribution() on one communicator.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>

#include "penstock/redistribute.hpp"

namespace penstock::comm {

class PlannedRedistribution;

// Whether a call finds its plan here decides how many operations it is, so all ranks have to find one, or none. They
// do: a plan is added at the end of the planning, which succeeds on all ranks or on none; a call that finds one changes
// nothing, so that one which fails on some ranks and not on others leaves no difference; what is forgotten follows from
// what was added; and what is compared are values that the ranks have to agree on. Where they do not agree, some start
// the operation of the plan that they have found, and others the planning or another plan: the engine tells all of them
// that the ranks' operations differ. Planning and plan both begin with an exchange between all ranks, so nobody has
// written anything by then, and each rank has spent one operation.
class RecentRedistributions {
 public:
  static constexpr std::size_t kMost = 16;

  /// A plan for this, but for where memory lies and for factors; or nullptr.
  std::shared_ptr<PlannedRedistribution> find(const Layout& source, const Layout& target,
                                              const RedistributionOptions& options) const;
  /// Of a plan that all ranks have just made.
  void add(std::shared_ptr<PlannedRedistribution> planned);

 private:
  std::deque<std::shared_ptr<PlannedRedistribution>> planned_;  ///< the first made first
};

}  // namespace penstock::comm
