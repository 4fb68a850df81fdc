/* A tool of MPI's profiling interface: rooted operations are slow, or if ROOTED_MOVES_NOTHING is set take no time, for
 * they move nothing. */
#include <unistd.h>

#include "../programs/check.h"

static int moves_nothing(void) {
  static int known = -1;
  if (known < 0) known = getenv("ROOTED_MOVES_NOTHING") != NULL;
  if (!known) usleep(20000); /* longer than other programs keep a rank from running */
  return known;
}

int MPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  return moves_nothing() ? MPI_SUCCESS : PMPI_Bcast(buffer, count, type, root, comm);
}

int MPI_Gather(const void* from, int sent, MPI_Datatype sent_type, void* to, int count, MPI_Datatype type, int root,
               MPI_Comm comm) {
  return moves_nothing() ? MPI_SUCCESS : PMPI_Gather(from, sent, sent_type, to, count, type, root, comm);
}

int MPI_Reduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
  return moves_nothing() ? MPI_SUCCESS : PMPI_Reduce(from, to, count, type, op, root, comm);
}
