#pragma once

namespace penstock::engine {

/// Asks for a cache line that this thread is about to write and that other cores have read, without waiting for it.
inline void prefetch_for_write(const void* line) noexcept {
#if defined(__x86_64__)
  // By its name: compilers emit a prefetch for reading unless they know the processor, and those without it ignore it.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace penstock::engine
