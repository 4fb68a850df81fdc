// comm::Native over MPI: each operation is one call of MPI's own collective.
#pragma once

#include PENSTOCK_MPI_HEADER

#include <memory>

#include "comm/native.hpp"

namespace penstock::mpi {

/// On a communicator of which nobody else uses the collectives, with errors returned; it must live as long as the
/// result is used, or until MPI_Finalize. `may_block` as Native has it.
std::unique_ptr<comm::Native> make_native(MPI_Comm comm, bool may_block);

}  // namespace penstock::mpi
