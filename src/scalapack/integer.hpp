// The integers of the calling program's ScaLAPACK and BLACS.
#pragma once

#include <cstdint>

namespace penstock::scalapack {

/// This folder is compiled for each: libpenstock_scalapack_ilp64_<abi> has the same names with 64 bits.
#ifdef PENSTOCK_SCALAPACK_ILP64
using Int = std::int64_t;
#else
using Int = std::int32_t;
#endif

}  // namespace penstock::scalapack
