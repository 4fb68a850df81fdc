// The cache of plans for start_redistribution() on one communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/lru_cache.hpp"
#include "penstock/redistribute.hpp"

namespace penstock::arrays {

class PlannedRedistribution;

// Invariant: all ranks find a plan, or none does, because a miss starts more operations than a hit. It holds because
// - a plan is added after planning, which succeeds on all ranks or on none;
// - a lookup changes nothing, so a call that fails on some ranks only leaves no difference;
// - eviction depends only on the plans added and their order;
// - keys contain only values that must be equal on all ranks.
// If ranks pass different values, some start a cached plan and others start planning or another plan. The engine
// reports to all of them that their operations differ. Both begin with an exchange between all ranks, so no output has
// been written, and each rank has used one operation.
//
// One per communicator, whose State owns it. One thread at a time.
class RecentRedistributions {
 public:
  explicit RecentRedistributions(std::uint64_t most_agreed_bytes) : kept_(most_agreed_bytes) {}

  /// A cached plan for these arguments, for any memory and factors; or nullptr.
  std::shared_ptr<PlannedRedistribution> find(const Layout& source, const Layout& target,
                                              const RedistributionOptions& options);
  /// Adds a plan that all ranks have just made. `agreed_bytes` is its memory on the rank with the most.
  void add(std::shared_ptr<PlannedRedistribution> planned, std::uint64_t agreed_bytes);

  std::size_t size() const { return kept_.size(); }

 private:
  /// The key: the arguments of a call, or those of a cached plan.
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
