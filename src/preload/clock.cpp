#include "preload/clock.hpp"

namespace penstock::preload {

double ns_per_tick() {
  static const double measured = [] {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::microseconds kSpan{500};
    const Clock::time_point begin = Clock::now();
    const std::uint64_t first = ticks();
    Clock::time_point end = begin;
    while (end - begin < kSpan) end = Clock::now();
    const std::uint64_t last = ticks();
    const auto ns = static_cast<double>(std::chrono::nanoseconds(end - begin).count());
    return last > first ? ns / static_cast<double>(last - first) : 1.0;
  }();
  return measured;
}

}  // namespace penstock::preload
