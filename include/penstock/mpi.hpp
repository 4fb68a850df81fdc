// Penstock's communicators from MPI's. Needs mpi.h, and the library penstock_<abi> of the MPI in use
// (penstock::mpich, penstock::openmpi or penstock::abi in CMake).
#pragma once

#ifndef PENSTOCK_MPI_HEADER
#define PENSTOCK_MPI_HEADER <mpi.h>
#endif
#include PENSTOCK_MPI_HEADER

#include "penstock/comm.hpp"
#include "penstock/export.hpp"

namespace penstock {

/// A communicator of the same ranks as `mpi`, on private duplicates of it: it may be freed afterwards. Collective and
/// blocking. Throws Error(invalid_argument) for MPI_COMM_NULL, inter-communicators and outside of MPI_Init and
/// MPI_Finalize, Error(mpi) where MPI fails; a failure on one rank is one on all, except for a failure of MPI itself.
/// The handle may be kept beyond MPI_Finalize; using it then throws Error(mpi).
PENSTOCK_API Comm make_comm(MPI_Comm mpi, const CommOptions& options = {});

}  // namespace penstock
