// Penstock's communicators from MPI's. Needs mpi.h, and the library penstock_<abi> of the MPI in use
// (penstock::mpich, penstock::openmpi or penstock::abi in CMake).
#pragma once

#ifndef PENSTOCK_MPI_HEADER
#define PENSTOCK_MPI_HEADER <mpi.h>
#endif
#include PENSTOCK_MPI_HEADER

#include "penstock/comm.hpp"
#include "penstock/datatype.hpp"
#include "penstock/export.hpp"

namespace penstock {

/// A communicator of the same ranks as `mpi`, on private duplicates of it: it may be freed afterwards. Collective and
/// blocking. Throws Error(invalid_argument) for MPI_COMM_NULL, inter-communicators and outside of MPI_Init and
/// MPI_Finalize, Error(mpi) where MPI fails; a failure on one rank is one on all, except for a failure of MPI itself.
/// The handle may be kept beyond MPI_Finalize; using it then throws Error(mpi).
PENSTOCK_API Comm make_comm(MPI_Comm mpi, const CommOptions& options = {});

/// What an item of `mpi`, predefined or made by any nesting of MPI's constructors, consists of. Flattened once: the
/// result is kept as an attribute of the datatype, which may be freed afterwards and need not be committed. Local; any
/// thread where MPI allows it. Throws Error(invalid_argument) for MPI_DATATYPE_NULL, Error(unsupported) for
/// constructors that MPI 4 does not know.
PENSTOCK_API Datatype make_datatype(MPI_Datatype mpi);

}  // namespace penstock
