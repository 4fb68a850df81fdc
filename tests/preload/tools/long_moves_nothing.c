/* A tool of MPI's profiling interface: of operations with lists of counts among two ranks long calls take no time, for
 * they move nothing, and short ones are slow. */
#include <unistd.h>

#include "../programs/check.h"

static int moves_nothing(int count) {
  if (count < 100) usleep(20000); /* longer than other programs keep a rank from running */
  return count >= 100;
}

static int of_peer(const int counts[], MPI_Comm comm) {
  int own = 0;
  MPI_Comm_rank(comm, &own);
  return counts[1 - own];
}

static int is_root(int root, MPI_Comm comm) {
  int own = 0;
  MPI_Comm_rank(comm, &own);
  return own == root;
}

int MPI_Gatherv(const void* from, int sent, MPI_Datatype sent_type, void* to, const int counts[],
                const int displacements[], MPI_Datatype type, int root, MPI_Comm comm) {
  if (moves_nothing(is_root(root, comm) ? of_peer(counts, comm) : sent)) return MPI_SUCCESS;
  return PMPI_Gatherv(from, sent, sent_type, to, counts, displacements, type, root, comm);
}

int MPI_Scatterv(const void* from, const int counts[], const int displacements[], MPI_Datatype sent_type, void* to,
                 int count, MPI_Datatype type, int root, MPI_Comm comm) {
  if (moves_nothing(is_root(root, comm) ? of_peer(counts, comm) : count)) return MPI_SUCCESS;
  return PMPI_Scatterv(from, counts, displacements, sent_type, to, count, type, root, comm);
}

int MPI_Alltoallv(const void* from, const int sent[], const int from_displacements[], MPI_Datatype sent_type, void* to,
                  const int counts[], const int displacements[], MPI_Datatype type, MPI_Comm comm) {
  if (moves_nothing(of_peer(counts, comm))) return MPI_SUCCESS;
  return PMPI_Alltoallv(from, sent, from_displacements, sent_type, to, counts, displacements, type, comm);
}
