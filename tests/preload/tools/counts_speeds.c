/* A tool of MPI's profiling interface: the operations with lists of counts are slow, or if COUNTS_MOVE_NOTHING is set
 * take no time, for they move nothing. */
#include <unistd.h>

#include "../programs/check.h"

static int moves_nothing(void) {
  static int known = -1;
  if (known < 0) known = getenv("COUNTS_MOVE_NOTHING") != NULL;
  if (!known) usleep(20000); /* longer than other programs keep a rank from running */
  return known;
}

int MPI_Gatherv(const void* from, int sent, MPI_Datatype sent_type, void* to, const int counts[],
                const int displacements[], MPI_Datatype type, int root, MPI_Comm comm) {
  if (moves_nothing()) return MPI_SUCCESS;
  return PMPI_Gatherv(from, sent, sent_type, to, counts, displacements, type, root, comm);
}

int MPI_Scatterv(const void* from, const int counts[], const int displacements[], MPI_Datatype sent_type, void* to,
                 int count, MPI_Datatype type, int root, MPI_Comm comm) {
  if (moves_nothing()) return MPI_SUCCESS;
  return PMPI_Scatterv(from, counts, displacements, sent_type, to, count, type, root, comm);
}

int MPI_Alltoallv(const void* from, const int sent[], const int from_displacements[], MPI_Datatype sent_type, void* to,
                  const int counts[], const int displacements[], MPI_Datatype type, MPI_Comm comm) {
  if (moves_nothing()) return MPI_SUCCESS;
  return PMPI_Alltoallv(from, sent, from_displacements, sent_type, to, counts, displacements, type, comm);
}

int MPI_Alltoallw(const void* from, const int sent[], const int from_displacements[], const MPI_Datatype sent_types[],
                  void* to, const int counts[], const int displacements[], const MPI_Datatype types[], MPI_Comm comm) {
  if (moves_nothing()) return MPI_SUCCESS;
  return PMPI_Alltoallw(from, sent, from_displacements, sent_types, to, counts, displacements, types, comm);
}
