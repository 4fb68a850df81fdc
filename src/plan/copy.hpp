// Copies between buffers of any alignment.
#pragma once

#include <cstddef>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace penstock::plan {

/// memcpy. Several of them copy what is long by `rep movsb`, which some processors do at a tenth of their speed where
/// source and target lie a few bytes apart modulo the size of a page: the data of NumPy's large arrays begins 16 bytes
/// into a page, memory that is shared at the begin of one.
inline void copy_bytes(std::byte* __restrict to, const std::byte* __restrict from, std::size_t size_bytes) {
#if defined(__SSE2__)
  constexpr std::size_t kShortBytes = 2048;  // where vectors are used anyway
  constexpr std::size_t kLineBytes = 64;
  if (size_bytes >= kShortBytes) {
    for (; size_bytes >= kLineBytes; size_bytes -= kLineBytes, from += kLineBytes, to += kLineBytes) {
      const auto* source = reinterpret_cast<const __m128i*>(from);
      auto* target = reinterpret_cast<__m128i*>(to);
      const __m128i first = _mm_loadu_si128(source);
      const __m128i second = _mm_loadu_si128(source + 1);
      const __m128i third = _mm_loadu_si128(source + 2);
      const __m128i fourth = _mm_loadu_si128(source + 3);
      _mm_storeu_si128(target, first);
      _mm_storeu_si128(target + 1, second);
      _mm_storeu_si128(target + 2, third);
      _mm_storeu_si128(target + 3, fourth);
    }
  }
#endif
  if (size_bytes > 0) std::memcpy(to, from, size_bytes);
}

}  // namespace penstock::plan
