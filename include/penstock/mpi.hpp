// Makes Penstock's communicators and datatypes from MPI's. Needs mpi.h, and the library penstock_<abi> of the MPI in
// use (in CMake penstock::mpich, penstock::openmpi or penstock::abi).
#pragma once

#ifndef PENSTOCK_MPI_HEADER
#define PENSTOCK_MPI_HEADER <mpi.h>
#endif
#include PENSTOCK_MPI_HEADER

#include "penstock/comm.hpp"
#include "penstock/datatype.hpp"
#include "penstock/export.hpp"

namespace penstock {

/// A communicator of the same ranks as `mpi`, on private duplicates of it; `mpi` may be freed afterwards. Collective,
/// blocking. Throws Error(invalid_argument) for MPI_COMM_NULL, for inter-communicators, and before MPI_Init or after
/// MPI_Finalize; throws Error(mpi) if MPI fails. A failure on one rank throws on all ranks, unless MPI itself failed.
/// The handle may outlive MPI_Finalize; using it then throws Error(mpi).
PENSTOCK_API Comm make_comm(MPI_Comm mpi, const CommOptions& options = {});

/// The layout of an item of `mpi`, predefined or derived. The result is cached as an attribute of the MPI datatype,
/// which may be freed afterwards and need not be committed. Local; any thread if MPI allows it. Throws
/// Error(invalid_argument) for MPI_DATATYPE_NULL, and Error(unsupported) for constructors that MPI 4 does not have.
PENSTOCK_API Datatype make_datatype(MPI_Datatype mpi);

}  // namespace penstock
