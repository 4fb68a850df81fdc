// Waits for a condition on machines of any speed.
#pragma once

#include <chrono>
#include <thread>

namespace penstock::test {

/// A test that waits this long hangs. CTest's own limit is longer.
constexpr std::chrono::minutes kHung{10};

/// Polls `holds` until it returns true. Returns false after kHung.
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
