/* A tool of MPI's profiling interface: a broadcast that takes no time, for it moves nothing, and a slow allgather. */
#include <unistd.h>

#include "../programs/check.h"

int MPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  (void)buffer, (void)count, (void)type, (void)root, (void)comm;
  return MPI_SUCCESS;
}

int MPI_Allgather(const void* from, int sent, MPI_Datatype sent_type, void* to, int count, MPI_Datatype type,
                  MPI_Comm comm) {
  usleep(20000); /* longer than other programs keep a rank from running */
  return PMPI_Allgather(from, sent, sent_type, to, count, type, comm);
}
