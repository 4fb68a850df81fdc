/* Many calls of few operations, so that it is found out who serves them faster. The roots change, and ranks come late.
 */
#include <unistd.h>

#include "check.h"

enum { CALLS = 300 };

/* A root that leaves at once, and then waits in a call that may be MPI's: nothing of Penstock may be in flight that the
 * others need it for. */
static void broadcasts_between_barriers(void) {
  for (int i = 0; i < CALLS; ++i) {
    int number = rank == 0 ? i : -1;
    MPI_Request request;
    MPI_Ibcast(&number, 1, MPI_INT, 0, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(number == i);
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  const MPI_Comm comm = MPI_COMM_WORLD;
  int all[64];
  for (int i = 0; i < CALLS; ++i) {
    if (i % 10 == 3 && i / 10 % ranks == rank) usleep(1000);
    MPI_Allgather(&rank, 1, MPI_INT, all, 1, MPI_INT, comm);
    for (int each = 0; each < ranks; ++each) CHECK(all[each] == each);
    int numbers[2] = {7, 11}; /* on all ranks: a tool's broadcast moves nothing */
    MPI_Bcast(numbers, 2, MPI_INT, i % ranks, comm);
    CHECK(numbers[0] == 7 && numbers[1] == 11);
    int total = 0;
    MPI_Allreduce(&i, &total, 1, MPI_INT, MPI_SUM, comm);
    CHECK(total == ranks * i);
    double sum = 0;
    const double mine = rank + i;
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, comm);
    CHECK(sum == ranks * (double)i + ranks * (ranks - 1) / 2.0);
    MPI_Gather(&i, 1, MPI_INT, all, 1, MPI_INT, ranks - 1, comm);
    CHECK(rank != ranks - 1 || all[0] == i);
  }
  broadcasts_between_barriers();
  if (rank == 0) puts("measured: ok");
  MPI_Finalize();
  return 0;
}
