#include "host/distance.hpp"

#include <algorithm>
#include <bit>
#include <chrono>

namespace penstock::host {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kLines = 4;
constexpr std::uint32_t kEvery = 4;     // calls per measurement, which costs some percent of filling 64 KiB
constexpr std::int64_t kMostNs = 1000;  // longer times mean that the thread was descheduled
constexpr std::uint32_t kFarNs = 110;   // with 25 for the clock: 35 to 70 within a chip, 130 to 220 from another chip
constexpr std::uint32_t kWeight = 8;    // of the average against one line
constexpr std::size_t kLeastBytes = (kLines + 1) * kLineBytes;

/// Gets a line in exclusive state by adding 0, since others may use it.
void take(std::byte* line) noexcept {
#if defined(__x86_64__)
  asm volatile("lock; addl $0, %0" : "+m"(*reinterpret_cast<std::uint32_t*>(line)) : : "memory", "cc");
#else
  static_cast<void>(line);  // then all cores count as near
#endif
}

}  // namespace

bool Distance::is_far(Bytes memory) noexcept {
  std::uint32_t average_ns = average_ns_.load(std::memory_order_relaxed);
  if (memory.size() >= kLeastBytes && calls_.fetch_add(1, std::memory_order_relaxed) % kEvery == 0) {
    const std::size_t first = -std::bit_cast<std::uintptr_t>(memory.data()) % kLineBytes;
    const std::size_t step = (memory.size() - kLineBytes) / kLines / kLineBytes * kLineBytes;
    for (std::size_t i = 0; i < kLines; ++i) {
      const auto begin = Clock::now();
      take(memory.data() + first + i * step);
      const std::chrono::nanoseconds taken = Clock::now() - begin;
      const auto ns = static_cast<std::uint32_t>(std::clamp<std::int64_t>(taken.count(), 0, kMostNs));
      average_ns = ((kWeight - 1) * average_ns + ns) / kWeight;
    }
    average_ns_.store(average_ns, std::memory_order_relaxed);
  }
  return average_ns > kFarNs;
}

}  // namespace penstock::host
