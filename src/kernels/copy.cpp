#include "kernels/copy.hpp"

#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#endif

namespace penstock::kernels {
namespace {

constexpr std::size_t kLeastStringBytes = 4096;  // for longer copies it is faster than vectors, at any alignment

// Sanitizers do not see the accesses of assembly.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
bool has_quick_strings() {
  constexpr unsigned kErms = 1u << 9;
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & kErms) != 0;
  }();
  return has;
}

void copy_string(std::byte* to, const std::byte* from, std::size_t size_bytes) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size_bytes) : : "memory");
}
#else
bool has_quick_strings() { return false; }
void copy_string(std::byte*, const std::byte*, std::size_t) {}
#endif

/// For such addresses `rep movsb` of some processors runs at a tenth of its speed.
bool is_little_behind(const std::byte* to, const std::byte* from) {
  constexpr std::uintptr_t kPageBytes = 4096;
  constexpr std::uintptr_t kLittleBytes = 64;
  const auto behind = (reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from)) % kPageBytes;
  return behind > 0 && behind < kLittleBytes;
}

}  // namespace

bool copy_as_string(std::byte* __restrict to, const std::byte* __restrict from, std::size_t size_bytes) {
  if (size_bytes < kLeastStringBytes || is_little_behind(to, from) || !has_quick_strings()) return false;
  copy_string(to, from, size_bytes);
  return true;
}

void copy_long(std::byte* __restrict to, const std::byte* __restrict from, std::size_t size_bytes) {
  if (copy_as_string(to, from, size_bytes)) return;
#if defined(__SSE2__)
  // Not memcpy: in several C libraries it uses `rep movsb` for these addresses too.
  constexpr std::size_t kLineBytes = 64;
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
#endif
  std::memcpy(to, from, size_bytes);
}

}  // namespace penstock::kernels
