// Entry points for Python, which has neither mpi.h nor this library at build time.
#include "mpi/native.hpp"
#include "penstock/export.hpp"
#include "penstock/mpi.hpp"

// Those that make something return new objects for the MPI handles at the addresses; the caller deletes them. Only
// their names have C linkage: they throw what make_comm and make_datatype throw. python/src/bind_comm.cpp and
// bind_datatype.cpp call them.

extern "C" PENSTOCK_API penstock::Comm* penstock_comm_from_address(const void* mpi_comm,
                                                                   const penstock::CommOptions* options) {
  return new penstock::Comm(penstock::make_comm(*static_cast<const MPI_Comm*>(mpi_comm), *options));
}

extern "C" PENSTOCK_API penstock::Datatype* penstock_datatype_from_address(const void* mpi_datatype) {
  return new penstock::Datatype(penstock::make_datatype(*static_cast<const MPI_Datatype*>(mpi_datatype)));
}

/// Whether the operation of the MPI_Request at the address is complete; throws Error(mpi).
extern "C" PENSTOCK_API bool penstock_test_request_at_address(void* mpi_request) {
  return penstock::mpi::test_request(*static_cast<MPI_Request*>(mpi_request));
}
