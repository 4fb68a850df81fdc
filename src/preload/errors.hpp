// Penstock's errors as MPI's.
#pragma once

#include PENSTOCK_MPI_HEADER

#include <exception>

namespace penstock::preload {

/// A code of MPI whose text is that of the error. Local, any thread.
int code_of(const std::exception& error) noexcept;

/// Calls the error handler of `comm`, and returns the code.
int raise(MPI_Comm comm, const std::exception& error) noexcept;

}  // namespace penstock::preload
