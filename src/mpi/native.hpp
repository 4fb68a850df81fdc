// comm::Native over MPI: each operation is one call of MPI's own collective.
#pragma once

#include PENSTOCK_MPI_HEADER

#include <memory>

#include "comm/native.hpp"

namespace penstock::mpi {

/// `comm` must be private and have MPI_ERRORS_RETURN. It must outlive the result, or live until MPI_Finalize.
/// `may_block`: see Native.
std::unique_ptr<comm::Native> make_native(MPI_Comm comm, bool may_block);

/// MPI_Test of an operation. Throws Error(mpi) after MPI_Finalize, too.
bool test_request(MPI_Request& request);

}  // namespace penstock::mpi
