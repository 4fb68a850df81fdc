#include "kernels/transpose_kernels.hpp"

#include "kernels/vectors.hpp"

namespace penstock::kernels {

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
extern const TransposeKernel kTransposeAvx2[kLineWorks][kLineStores];  // transpose_kernels_avx2.cpp
extern const TransposeKernel kTransposeAvx512[kMoves][kLineStores];    // transpose_kernels_avx512.cpp
#endif

TransposeKernel transpose_kernel(Vectors vectors, LineWork work, LineStore store) noexcept {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
  const auto row = static_cast<std::size_t>(work);
  const auto column = static_cast<std::size_t>(store);
  if (vectors == Vectors::avx512 && row < kMoves) return kTransposeAvx512[row][column];
  if (vectors != Vectors::plain) return kTransposeAvx2[row][column];
#endif
  static_cast<void>(vectors);
  static_cast<void>(work);
  static_cast<void>(store);
  return {};
}

}  // namespace penstock::kernels
