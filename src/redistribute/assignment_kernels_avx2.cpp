// The same kernels for AVX2. Do not include headers with inline functions: the linker could choose their AVX2 versions
// for other processors.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("avx2")
#include "redistribute/assignment_rows.hpp"

namespace penstock::redistribute {

extern const RowKernels kRowKernelsAvx2;
const RowKernels kRowKernelsAvx2{two_best, relax};

}  // namespace penstock::redistribute
#endif
