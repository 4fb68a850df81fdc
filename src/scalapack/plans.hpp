// The cached plans of past calls.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <utility>

#include "penstock/comm.hpp"
#include "penstock/layout.hpp"
#include "penstock/plan.hpp"
#include "penstock/redistribute.hpp"

namespace penstock::scalapack {

/// Identifies a call on all its processes.
using Key = std::array<std::uint64_t, 2>;

/// The results of the last calls on one communicator. All ranks look up the same keys in the same order, so they hit,
/// miss and evict the same ones.
template <typename Result>
class Recent {
 public:
  static constexpr std::size_t kMost = 64;

  Result* find(const Key& key) {
    for (auto entry = results_.begin(); entry != results_.end(); ++entry)
      if (entry->first == key) {
        results_.splice(results_.begin(), results_, entry);
        return &results_.front().second;
      }
    return nullptr;
  }

  Result& add(const Key& key, Result result) {
    if (results_.size() == kMost) results_.pop_back();
    return results_.emplace_front(key, std::move(result)).second;
  }

  void clear() { results_.clear(); }

 private:
  std::list<std::pair<Key, Result>> results_;  // the latest first
};

/// The agreement on a call of which each process knows everything but the leading dimensions of the others.
struct Agreed {
  Layout source;
  Layout target;
  RedistributionOptions options;  ///< with the leading dimensions of `plan`
  std::shared_ptr<const Plan> plan;
};

/// The caches of one communicator. One thread at a time.
struct Plans {
  Recent<std::shared_ptr<const Plan>> by_sum;  ///< by the sum of what the processes know
  Recent<Agreed> by_arguments;                 ///< by what each process knows

  /// After a failure, when the caches of the ranks may differ.
  void clear() {
    by_sum.clear();
    by_arguments.clear();
  }
};

/// The plans of a communicator that comm_of() has returned.
Plans& plans_of(const Comm& comm);

}  // namespace penstock::scalapack
