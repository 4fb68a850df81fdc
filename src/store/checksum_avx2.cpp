// XXH3-128 for processors with AVX2. Most x86-64 processors have it, but compilers do not assume it. This file may
// include only xxHash, whose functions are static here, and intrinsics: the linker might use any other inline function,
// compiled for AVX2, in place of the same function of another file.
//
// The loop over long data is xxHash's, with the sums kept in registers. GCC keeps xxHash's own sums in memory; then
// every step waits for the one before, which halves the speed.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("avx2")
#define XXH_INLINE_ALL
#include <immintrin.h>
#include <xxhash.h>

namespace penstock::store {

namespace {

constexpr size_t kStripeBytes = 64;
constexpr size_t kBlockStripes = 16;
constexpr size_t kBlockBytes = kBlockStripes * kStripeBytes;
constexpr size_t kSecretBytes = 192;

__m256i load(const unsigned char* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }

/// xxHash's eight sums, in two registers. Each sum takes one eighth of every stripe.
struct Sums {
  __m256i low, high;

  void add(const unsigned char* stripe, const unsigned char* secret) {
    low = add(low, load(stripe), load(secret));
    high = add(high, load(stripe + 32), load(secret + 32));
  }
  void scramble(const unsigned char* secret) {
    low = scramble(low, load(secret));
    high = scramble(high, load(secret + 32));
  }

 private:
  static __m256i add(__m256i sum, __m256i data, __m256i secret) {
    const __m256i keyed = _mm256_xor_si256(data, secret);
    const __m256i product = _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32));
    return _mm256_add_epi64(product, _mm256_add_epi64(sum, _mm256_shuffle_epi32(data, _MM_SHUFFLE(1, 0, 3, 2))));
  }
  static __m256i scramble(__m256i sum, __m256i secret) {
    const __m256i prime = _mm256_set1_epi32(static_cast<int>(XXH_PRIME32_1));
    const __m256i mixed = _mm256_xor_si256(_mm256_xor_si256(sum, _mm256_srli_epi64(sum, 47)), secret);
    const __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(mixed, 32), prime);
    return _mm256_add_epi64(_mm256_mul_epu32(mixed, prime), _mm256_slli_epi64(high, 32));
  }
};

}  // namespace

XXH128_hash_t checksum_avx2(const void* data, size_t size_bytes) {
  if (size_bytes <= kBlockBytes) return XXH3_128bits(data, size_bytes);
  const auto* at = static_cast<const unsigned char*>(data);
  const unsigned char* const last = at + size_bytes - kStripeBytes;
  const unsigned char* const secret = XXH3_kSecret;
  alignas(32) XXH64_hash_t memory[8] = XXH3_INIT_ACC;
  auto* const halves = reinterpret_cast<__m256i*>(memory);
  Sums sums{_mm256_load_si256(halves), _mm256_load_si256(halves + 1)};
  const size_t blocks = (size_bytes - 1) / kBlockBytes;
  for (size_t block = 0; block < blocks; ++block, at += kBlockBytes) {
#pragma GCC unroll 16
    for (size_t i = 0; i < kBlockStripes; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(at + i * kStripeBytes + 512), _MM_HINT_T0);
      sums.add(at + i * kStripeBytes, secret + i * 8);
    }
    sums.scramble(secret + kSecretBytes - kStripeBytes);
  }
  const size_t stripes = (size_bytes - 1 - blocks * kBlockBytes) / kStripeBytes;
  for (size_t i = 0; i < stripes; ++i) sums.add(at + i * kStripeBytes, secret + i * 8);
  sums.add(last, secret + kSecretBytes - kStripeBytes - 7);
  _mm256_store_si256(halves, sums.low);
  _mm256_store_si256(halves + 1, sums.high);
  const XXH64_hash_t size = size_bytes;
  return {XXH3_mergeAccs(memory, secret + 11, size * XXH_PRIME64_1),
          XXH3_mergeAccs(memory, secret + kSecretBytes - kStripeBytes - 11, ~(size * XXH_PRIME64_2))};
}

}  // namespace penstock::store
#endif
