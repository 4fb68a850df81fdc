// MPI's predefined datatypes and operations, by their handles.
#pragma once

#include PENSTOCK_MPI_HEADER

#include <cstdint>

#include "penstock/types.hpp"

namespace penstock::preload {

struct NamedType {
  std::uint64_t bytes = 0;  ///< 0: a pair with holes
  bool has_dtype = false;   ///< reductions know it
  DType dtype = DType::uint8;
  bool only_bits = false;  ///< MPI_BYTE
};

/// nullptr for other datatypes.
const NamedType* named_type(MPI_Datatype type);
const ReduceOp* named_op(MPI_Op op);

}  // namespace penstock::preload
