#include "plan/transpose_kernels.hpp"

namespace penstock::plan {

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
extern const TransposeKernel kTransposeAvx2[kLineWorks][kLineStores];  // transpose_kernels_avx2.cpp
#endif

TransposeKernel transpose_kernel(LineWork work, LineStore store) noexcept {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  if (has_avx2) return kTransposeAvx2[static_cast<std::size_t>(work)][static_cast<std::size_t>(store)];
#endif
  static_cast<void>(work);
  static_cast<void>(store);
  return {};
}

}  // namespace penstock::plan
