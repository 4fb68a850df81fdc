// One pass over the operations in flight, apart from MPI.
#pragma once

#include <cstddef>
#include <vector>

namespace penstock::preload {

/// Tests operations in the order of their start. Those that `has_completed` leave the list and are given to `complete`.
/// An operation whose may_be_complete() is false is a collective under way: a test of one drives all of them, so each
/// pass tests one. Returns how many have completed.
template <class Each, class HasCompleted, class Complete>
std::size_t test_in_order(std::vector<Each*>& all, const HasCompleted& has_completed, const Complete& complete) {
  bool has_driven = false;
  std::size_t left = 0;
  for (Each* const each : all) {
    const bool drives = !each->may_be_complete();
    if ((drives && has_driven) || !has_completed(*each)) {
      has_driven = has_driven || drives;
      all[left++] = each;
    } else {
      complete(*each);
    }
  }
  const std::size_t completed = all.size() - left;
  all.resize(left);
  return completed;
}

}  // namespace penstock::preload
