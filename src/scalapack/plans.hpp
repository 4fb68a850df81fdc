// The plans of past calls.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <utility>

#include "penstock/comm.hpp"
#include "penstock/plan.hpp"

namespace penstock::scalapack {

/// What identifies a call on all its processes together.
using Key = std::array<std::uint64_t, 2>;

/// The last plans that ran on one communicator. All its ranks ask for the same keys in the same order, so they find or
/// miss a plan together, and forget the same ones.
class Plans {
 public:
  static constexpr std::size_t kMost = 64;

  std::shared_ptr<const Plan> find(const Key& key) {
    for (auto entry = plans_.begin(); entry != plans_.end(); ++entry)
      if (entry->first == key) {
        plans_.splice(plans_.begin(), plans_, entry);
        return entry->second;
      }
    return nullptr;
  }

  void add(const Key& key, std::shared_ptr<const Plan> plan) {
    if (plans_.size() == kMost) plans_.pop_back();
    plans_.emplace_front(key, std::move(plan));
  }

 private:
  std::list<std::pair<Key, std::shared_ptr<const Plan>>> plans_;  // the latest first
};

/// Those of a communicator that comm_of() has returned.
Plans& plans_of(const Comm& comm);

}  // namespace penstock::scalapack
