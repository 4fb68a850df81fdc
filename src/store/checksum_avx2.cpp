// The same checksum for processors with AVX2, which most have and compilers do not assume. Nothing but xxHash, whose
// functions are all static here, may be included: code for AVX2 must not take the place of anybody else's.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("avx2")
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace penstock::store {

XXH128_hash_t checksum_avx2(const void* data, size_t size_bytes) { return XXH3_128bits(data, size_bytes); }

}  // namespace penstock::store
#endif
