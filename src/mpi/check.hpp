// Turns MPI's return codes into Penstock's exceptions.
#pragma once

#include PENSTOCK_MPI_HEADER

#include <string>

namespace penstock::mpi {

/// MPI's text for a return code.
std::string error_text(int result);

/// Throws Error(mpi) with the name of the function and MPI's text unless `result` is MPI_SUCCESS.
void check(int result, const char* function);

/// A duplicate of `parent` with MPI_ERRORS_RETURN. Collective. If MPI has no communicator left, it throws Error(mpi) on
/// all ranks, for any error handler of `parent`.
MPI_Comm duplicate(MPI_Comm parent);

/// Throws Error(invalid_argument) before MPI_Init and after MPI_Finalize.
void require_running();
/// Whether MPI is initialized and not finalized.
bool running();
/// Whether MPI allows this thread to call it.
bool may_call();

}  // namespace penstock::mpi
