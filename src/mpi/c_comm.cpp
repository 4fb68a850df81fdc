#include <exception>

#include "c/handles.hpp"
#include "c/status.hpp"
#include "mpi/transport.hpp"
#include "penstock/error.hpp"
#include "penstock/mpi.hpp"
#include "penstock/penstock_mpi.h"

int penstock_comm_create(MPI_Comm mpi, int progress_cores, penstock_comm** comm) {
  return penstock::c::guarded([&] {
    // Fails on all ranks: the others would go on with a communicator that this rank cannot return.
    std::exception_ptr failure;
    try {
      penstock::c::require(comm, "penstock_comm_create", "comm");
    } catch (const penstock::Error&) {
      failure = std::current_exception();
    }
    *comm = penstock::c::wrap<penstock_comm>(
        penstock::mpi::make_comm_unless(failure, mpi, {.progress_cores = progress_cores}));
  });
}

int penstock_datatype_create(MPI_Datatype mpi, penstock_datatype** datatype) {
  return penstock::c::guarded([&] {
    penstock::c::require(datatype, "penstock_datatype_create", "datatype");
    *datatype = penstock::c::wrap<penstock_datatype>(penstock::make_datatype(mpi));
  });
}
