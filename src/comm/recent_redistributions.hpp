// The plans of past calls of start_redistribution() on one communicator.
#pragma once

#include <cstddef>
#include <cstdint>
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
  /// Of all plans but the last one, which is kept however long it is.
  static constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;

  /// A plan for this, but for where memory lies and for factors; or nullptr.
  std::shared_ptr<PlannedRedistribution> find(const Layout& source, const Layout& target,
                                              const RedistributionOptions& options) const;
  /// Of a plan that all ranks have just made. `agreed_bytes` is what it takes on the rank where it takes most.
  void add(std::shared_ptr<PlannedRedistribution> planned, std::uint64_t agreed_bytes);

  std::size_t size() const { return kept_.size(); }

 private:
  struct Kept {
    std::shared_ptr<PlannedRedistribution> planned;
    std::uint64_t agreed_bytes;
  };
  std::deque<Kept> kept_;  ///< the first made first
  std::uint64_t kept_bytes_ = 0;
};

}  // namespace penstock::comm
