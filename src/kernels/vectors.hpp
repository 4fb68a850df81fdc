// Selects vector instructions: the widest ones that the processor has. All give the same bits as scalar code.
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
  plain,   ///< those that the build assumes
  avx2,    ///< with F16C
  avx512,  ///< F, BW, DQ and VL
};
inline constexpr std::size_t kVectors = 3;

/// Whether this processor has these instructions.
bool has(Vectors vectors);
Vectors widest_vectors();

/// As reduce(), with these instructions, which the processor must have.
void reduce(Vectors vectors, const Arithmetic& arithmetic, ConstBytes from, Bytes to);

}  // namespace penstock::kernels
