// The same kernels for processors with AVX2. Nothing with functions that others could share may be included: code for
// AVX2 must not take the place of anybody else's.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("avx2")
#include "redistribute/assignment_rows.hpp"

namespace penstock::redistribute {

extern const RowKernels kRowKernelsAvx2;
const RowKernels kRowKernelsAvx2{two_best, relax};

}  // namespace penstock::redistribute
#endif
