#include "redistribute/assignment_rows.hpp"

namespace penstock::redistribute {

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
extern const RowKernels kRowKernelsAvx2;  // assignment_kernels_avx2.cpp
#endif

const RowKernels& row_kernels() {
  static constexpr RowKernels kPlain{two_best, relax};
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  if (has_avx2) return kRowKernelsAvx2;
#endif
  return kPlain;
}

}  // namespace penstock::redistribute
