// A clock for calls that take less than reading std::chrono's: the processor's counter, where programs can read one.
#pragma once

#include <chrono>
#include <cstdint>

namespace penstock::preload {

inline std::uint64_t ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  std::uint64_t now = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(now));
  return now;
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

/// Measured once in a process, which takes a fraction of a millisecond.
double ns_per_tick();

}  // namespace penstock::preload
