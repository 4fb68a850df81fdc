// How Python, which knows neither mpi.h nor this library at build time, comes to a communicator.
#include "penstock/export.hpp"
#include "penstock/mpi.hpp"

/// A new Comm, to be deleted by the caller, for the MPI_Comm that lies at `mpi_comm`. C++ in all but its name: throws
/// what make_comm throws. python/src/bind_comm.cpp calls it.
extern "C" PENSTOCK_API penstock::Comm* penstock_comm_from_address(const void* mpi_comm,
                                                                   const penstock::CommOptions* options) {
  return new penstock::Comm(penstock::make_comm(*static_cast<const MPI_Comm*>(mpi_comm), *options));
}
