// How Python, which knows neither mpi.h nor this library at build time, comes to what is made of MPI's objects.
#include "penstock/export.hpp"
#include "penstock/mpi.hpp"

// New objects, to be deleted by the caller, for the handles that lie at the addresses. C++ in all but their names: they
// throw what make_comm and make_datatype throw. bind_comm.cpp and bind_datatype.cpp of python/src call them.

extern "C" PENSTOCK_API penstock::Comm* penstock_comm_from_address(const void* mpi_comm,
                                                                   const penstock::CommOptions* options) {
  return new penstock::Comm(penstock::make_comm(*static_cast<const MPI_Comm*>(mpi_comm), *options));
}

extern "C" PENSTOCK_API penstock::Datatype* penstock_datatype_from_address(const void* mpi_datatype) {
  return new penstock::Datatype(penstock::make_datatype(*static_cast<const MPI_Datatype*>(mpi_datatype)));
}
