// MPI's return codes as Penstock's exceptions.
#pragma once

#include PENSTOCK_MPI_HEADER

#include <string>

namespace penstock::mpi {

/// MPI's text for a return code.
std::string error_text(int result);

/// Throws Error(mpi) with the name of the function and MPI's text unless `result` is MPI_SUCCESS.
void check(int result, const char* function);

/// Throws Error(invalid_argument) before MPI_Init and after MPI_Finalize.
void require_running();
/// Between MPI_Init and MPI_Finalize.
bool running();

}  // namespace penstock::mpi
