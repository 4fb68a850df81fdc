// MPI's return codes as Penstock's exceptions.
#pragma once

#include PENSTOCK_MPI_HEADER

#include <string>

namespace penstock::mpi {

/// MPI's text for a return code.
std::string error_text(int result);

/// Throws Error(mpi) with the name of the function and MPI's text unless `result` is MPI_SUCCESS.
void check(int result, const char* function);

/// A duplicate of `parent`, with errors returned. Collective. Where MPI has no communicator left, it throws Error(mpi)
/// on all ranks, whatever the error handler of `parent` does.
MPI_Comm duplicate(MPI_Comm parent);

/// Throws Error(invalid_argument) before MPI_Init and after MPI_Finalize.
void require_running();
/// Between MPI_Init and MPI_Finalize.
bool running();
/// Whether MPI allows this thread to call it.
bool may_call();

}  // namespace penstock::mpi
