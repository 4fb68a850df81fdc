// The plans of past calls.
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

/// What identifies a call on all its processes together.
using Key = std::array<std::uint64_t, 2>;

/// What the last calls on one communicator came to. All its ranks ask for the same keys in the same order, so they find
/// or miss one together, and forget the same ones.
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

/// What all processes agreed on about a call of which each sees everything but the others' leading dimensions.
struct Agreed {
  Layout source;
  Layout target;
  RedistributionOptions options;  ///< with the leading dimensions of `plan`
  std::shared_ptr<const Plan> plan;
};

struct Plans {
  Recent<std::shared_ptr<const Plan>> by_sum;  ///< by the sum of what the processes know
  Recent<Agreed> by_arguments;                 ///< by what each process knows

  /// After a failure, when it is not sure any more that all ranks know the same.
  void clear() {
    by_sum.clear();
    by_arguments.clear();
  }
};

/// Those of a communicator that comm_of() has returned.
Plans& plans_of(const Comm& comm);

}  // namespace penstock::scalapack
