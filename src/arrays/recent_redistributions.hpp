// The plans of past calls of start_redistribution() on one communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/lru_cache.hpp"
#include "penstock/redistribute.hpp"

namespace penstock::arrays {

class PlannedRedistribution;

// Whether a call finds its plan here decides how many operations it is, so all ranks have to find one, or none. They
// do: a plan is added at the end of the planning, which succeeds on all ranks or on none; a call that finds one changes
// nothing, so that one which fails on some ranks and not on others leaves no difference; what is forgotten follows from
// what was added, in the order in which it was; and what is compared are values that the ranks have to agree on. Where
// they do not agree, some start the operation of the plan that they have found, and others the planning or another
// plan: the engine tells all of them that the ranks' operations differ. Planning and plan both begin with an exchange
// between all ranks, so nobody has written anything by then, and each rank has spent one operation.
class RecentRedistributions {
 public:
  explicit RecentRedistributions(std::uint64_t most_agreed_bytes) : kept_(most_agreed_bytes) {}

  /// A plan for this, but for where memory lies and for factors; or nullptr.
  std::shared_ptr<PlannedRedistribution> find(const Layout& source, const Layout& target,
                                              const RedistributionOptions& options);
  /// Of a plan that all ranks have just made. `agreed_bytes` is what it takes on the rank where it takes most.
  void add(std::shared_ptr<PlannedRedistribution> planned, std::uint64_t agreed_bytes);

  std::size_t size() const { return kept_.size(); }

 private:
  /// What a call asks for, or of what a plan holds.
  struct Key {
    const Layout* source;
    const Layout* target;
    const RedistributionOptions* options;

    bool operator==(const Key& other) const;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const;
  };
  base::LruCache<Key, std::shared_ptr<PlannedRedistribution>, Hash> kept_;
};

}  // namespace penstock::arrays
