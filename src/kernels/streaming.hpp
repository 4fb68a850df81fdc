// Non-temporal stores. They do not evict other data from the caches, while ordinary stores to a target larger than the
// caches do. And they do not read the cache line that they overwrite.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace penstock::kernels {

#if defined(__SSE2__)
inline constexpr bool kCanStream = true;
#else
inline constexpr bool kCanStream = false;
#endif

inline constexpr std::size_t kLineBytes = 64;
/// Targets of at least this size are written by non-temporal stores: they do not fit in a second-level cache beside the
/// source.
inline constexpr std::size_t kStreamedBytes = std::size_t{4} << 20;

/// Stores 16 bytes to an address that is a multiple of 16. Consecutive stores should fill whole cache lines.
inline void stream_16(std::byte* to, const std::byte* from) {
#if defined(__SSE2__)
  _mm_stream_si128(reinterpret_cast<__m128i*>(to), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
  std::memcpy(to, from, 16);
#endif
}

/// Orders non-temporal stores before later stores.
inline void end_streaming() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

/// Prefetches the cache lines that a row covers partly: a store that waits for such a line stalls the non-temporal
/// stores behind it.
inline void expect_row(const std::byte* to, std::size_t size_bytes) {
  if (reinterpret_cast<std::uintptr_t>(to) % kLineBytes != 0) __builtin_prefetch(to, 1);
  if (reinterpret_cast<std::uintptr_t>(to + size_bytes) % kLineBytes != 0) __builtin_prefetch(to + size_bytes - 1, 1);
}
/// Prefetches a line into the second-level cache only. A prefetch into the first level would occupy one of its few line
/// fill buffers until memory answers.
inline void fetch(const std::byte* line) { __builtin_prefetch(line, 0, 2); }

/// How many rows ahead an uncached source is prefetched. Few, since rows that are a power of two apart map to the same
/// cache sets and would evict each other before they are used.
inline std::size_t rows_ahead(std::size_t row_bytes) {
  constexpr std::size_t kAheadBytes = 4096;
  return std::clamp<std::size_t>(kAheadBytes / std::max<std::size_t>(row_bytes, 1), 2, 16);
}
inline constexpr std::size_t kTargetRowsAhead = 8;
inline void fetch_row(const std::byte* from, std::size_t size_bytes) {
  for (std::size_t at = 0; at < size_bytes; at += kLineBytes) fetch(from + at);
}

/// memcpy from uncached memory. While it copies a row, it prefetches as much of a `later` row, line by line. The
/// hardware prefetcher only follows a long row, and bursts of prefetches wait for each other.
inline void copy_far_row(std::byte* __restrict to, const std::byte* __restrict from, std::size_t size_bytes,
                         const std::byte* later) {
  std::size_t at = 0;
  for (; at + kLineBytes <= size_bytes; at += kLineBytes) {
    fetch(later + at);
    std::memcpy(to + at, from + at, kLineBytes);
  }
  if (at < size_bytes) {
    fetch(later + at);
    std::memcpy(to + at, from + at, size_bytes - at);
  }
}

/// memcpy by non-temporal stores for the whole cache lines of the target; with a `later` row as copy_far_row().
inline void stream_row(std::byte* __restrict to, const std::byte* __restrict from, std::size_t size_bytes,
                       const std::byte* later = nullptr) {
  const std::size_t head_bytes = -reinterpret_cast<std::uintptr_t>(to) % kLineBytes;
  if (later != nullptr) fetch(later);
  if (size_bytes < head_bytes + kLineBytes) {
    std::memcpy(to, from, size_bytes);
    return;
  }
  std::memcpy(to, from, head_bytes);
  std::size_t at = head_bytes;
  for (; at + kLineBytes <= size_bytes; at += kLineBytes) {
    if (later != nullptr) fetch(later + at);
    for (std::size_t part = 0; part < kLineBytes; part += 16) stream_16(to + at + part, from + at + part);
  }
  std::memcpy(to + at, from + at, size_bytes - at);
}

/// memcpy by non-temporal stores.
inline void stream_bytes(std::byte* __restrict to, const std::byte* __restrict from, std::size_t size_bytes) {
  stream_row(to, from, size_bytes);
  end_streaming();
}

}  // namespace penstock::kernels
