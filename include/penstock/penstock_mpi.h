/* Makes communicators and datatypes of the C interface from MPI's. Needs mpi.h and the library penstock_<abi> of the
 * MPI in use. */
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

/* A communicator of the same ranks, on private duplicates of `mpi`, which may be freed afterwards. `progress_cores` is
 * the number of communication cores per node; -1: those that no rank uses, at most one per rank; 0: none. Collective.
 */
PENSTOCK_API int penstock_comm_create(MPI_Comm mpi, int progress_cores, penstock_comm** comm);

/* The layout of an item of `mpi`, predefined or derived, for penstock_items. The result is cached with the MPI
 * datatype, which may be freed afterwards and need not be committed. Local. penstock_datatype_free frees it. */
PENSTOCK_API int penstock_datatype_create(MPI_Datatype mpi, penstock_datatype** datatype);

#ifdef __cplusplus
}
#endif

#endif
