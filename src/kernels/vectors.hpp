// Which vector instructions the arithmetic uses: the widest that the processor has, with the same bits as without.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/arithmetic.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#define PENSTOCK_X86_VECTORS
#define PENSTOCK_FOR_AVX2 [[gnu::target("avx2,f16c")]]
#define PENSTOCK_FOR_AVX512 [[gnu::target("avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]]
#endif

namespace penstock::kernels {

enum class Vectors : std::uint8_t {
  plain,   ///< what every processor has that this was compiled for
  avx2,    ///< with F16C
  avx512,  ///< F, BW, DQ and VL
};
inline constexpr std::size_t kVectors = 3;

/// Whether this processor has them.
bool has(Vectors vectors);
Vectors widest_vectors();

/// As reduce(), by vectors that the processor has.
void reduce(Vectors vectors, const Arithmetic& arithmetic, ConstBytes from, Bytes to);

}  // namespace penstock::kernels
