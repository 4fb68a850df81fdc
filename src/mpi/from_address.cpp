// Entry points for Python, which has neither mpi.h nor this library at build time.
#include "penstock/export.hpp"
#include "penstock/mpi.hpp"

// They return new objects for the MPI handles at the addresses; the caller deletes them. Only their names have C
// linkage: they throw what make_comm and make_datatype throw. python/src/bind_comm.cpp and bind_datatype.cpp call them.

extern "C" PENSTOCK_API penstock::Comm* penstock_comm_from_address(const void* mpi_comm,
                                                                   const penstock::CommOptions* options) {
  return new penstock::Comm(penstock::make_comm(*static_cast<const MPI_Comm*>(mpi_comm), *options));
}

extern "C" PENSTOCK_API penstock::Datatype* penstock_datatype_from_address(const void* mpi_datatype) {
  return new penstock::Datatype(penstock::make_datatype(*static_cast<const MPI_Datatype*>(mpi_datatype)));
}
