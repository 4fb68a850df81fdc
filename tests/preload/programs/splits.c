/* Collectives on communicators alone whose first ranks are different processes: halves, then all in the reverse order.
 */
#include "check.h"

static void use(MPI_Comm comm) {
  int mine = 1, all = 0, members;
  MPI_Comm_size(comm, &members);
  MPI_Barrier(comm);
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, comm);
  CHECK(all == members);
  MPI_Comm_free(&comm);
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  MPI_Comm half, reversed;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  use(half);
  MPI_Comm_dup(MPI_COMM_WORLD, &half);
  use(half);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
  use(reversed);
  if (rank == 0) puts("splits: ok");
  MPI_Finalize();
  return 0;
}
