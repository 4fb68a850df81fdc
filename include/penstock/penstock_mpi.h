/* Communicators of Penstock's C interface from MPI's. Needs mpi.h and the library penstock_<abi> of the MPI in use. */
#ifndef PENSTOCK_MPI_H
#define PENSTOCK_MPI_H

#ifndef PENSTOCK_MPI_HEADER
#define PENSTOCK_MPI_HEADER <mpi.h>
#endif
#include PENSTOCK_MPI_HEADER

#include "penstock/penstock.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A communicator of the same ranks, on private duplicates of `mpi`, which may be freed afterwards. `progress_cores`:
 * communication cores of each node; -1 is those that no rank needs, at most one per rank; 0 is off. Collective. */
PENSTOCK_API int penstock_comm_create(MPI_Comm mpi, int progress_cores, penstock_comm** comm);

/* What an item of `mpi`, predefined or derived, consists of, for penstock_items. Flattened once and kept with the MPI
 * datatype, which may be freed afterwards and need not be committed. Local. Freed by penstock_datatype_free. */
PENSTOCK_API int penstock_datatype_create(MPI_Datatype mpi, penstock_datatype** datatype);

#ifdef __cplusplus
}
#endif

#endif
