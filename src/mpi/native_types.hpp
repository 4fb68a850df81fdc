// The MPI datatypes and operations of Penstock's element types and operations.
#pragma once

#include PENSTOCK_MPI_HEADER

#include "penstock/types.hpp"

namespace penstock::mpi {

/// MPI_DATATYPE_NULL if MPI has no predefined type with this layout.
MPI_Datatype datatype_of(DType dtype);
MPI_Op op_of(ReduceOp op);

}  // namespace penstock::mpi
