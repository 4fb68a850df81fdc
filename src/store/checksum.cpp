#include "store/checksum.hpp"

#include <cstdio>
#include <cstring>
#include <memory>

#define XXH_INLINE_ALL
#if !defined(NDEBUG)
#define XXH_NO_INLINE_HINTS 1  // with -Og GCC inlines less, and reports xxHash's inline hints as errors
#endif
#include <xxhash.h>

namespace penstock::store {

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
XXH128_hash_t checksum_avx2(const void* data, std::size_t size_bytes);  // checksum_avx2.cpp
#endif

namespace {

/// Up to this many bytes in total, pieces are copied to one place first. That is faster than to hash them one by one.
constexpr std::size_t kGatheredBytes = 16 << 10;

XXH128_hash_t hash(const void* data, std::size_t size_bytes) {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  if (has_avx2) return checksum_avx2(data, size_bytes);
#endif
  return XXH3_128bits(data, size_bytes);
}

Checksum convert(const XXH128_hash_t& hash) { return {hash.low64, hash.high64}; }

}  // namespace

Checksum checksum(ConstBytes data) { return convert(hash(data.data(), data.size())); }

Checksum checksum(std::span<const ConstBytes> pieces) {
  if (pieces.size() == 1) return checksum(pieces.front());
  std::size_t total_bytes = 0;
  for (const ConstBytes piece : pieces) total_bytes += piece.size();
  if (std::byte together[kGatheredBytes]; total_bytes <= sizeof together) {
    std::size_t used = 0;
    for (const ConstBytes piece : pieces) {
      if (!piece.empty()) std::memcpy(together + used, piece.data(), piece.size());
      used += piece.size();
    }
    return checksum(ConstBytes(together, total_bytes));
  }
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  XXH3_128bits_reset(state.get());
  for (const ConstBytes piece : pieces) XXH3_128bits_update(state.get(), piece.data(), piece.size());
  return convert(XXH3_128bits_digest(state.get()));
}

std::string to_string(const Checksum& sum) {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(sum.high),
                static_cast<unsigned long long>(sum.low));
  return text;
}

}  // namespace penstock::store
