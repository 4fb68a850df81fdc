// Waiting for what must come, however slow the machine is.
#pragma once

#include <chrono>
#include <thread>

namespace penstock::test {

/// Longer than anything takes that is not hung; CTest ends a test after more than that.
constexpr std::chrono::minutes kHung{10};

/// Looks until `holds` does. False if that takes as long as only a hang does.
template <typename Predicate>
bool eventually(const Predicate& holds) {
  const auto end = std::chrono::steady_clock::now() + kHung;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace penstock::test
