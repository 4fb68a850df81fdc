#pragma once

namespace penstock::host {

/// Tells the processor that this thread polls. The other hardware thread of the core then gets the execution units, and
/// leaving the loop costs less.
inline void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace penstock::host
