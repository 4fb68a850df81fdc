/* Non-blocking collectives between calls that wait for all ranks, in which it is found out who serves them faster. */
#include "check.h"

enum { CALLS = 40 };

int main(int argc, char** argv) {
  begin(&argc, &argv);
  const MPI_Comm comm = MPI_COMM_WORLD;
  MPI_Barrier(comm);
  MPI_Request over; /* in flight during a rehearsal */
  int total = 0;
  MPI_Iallreduce(&rank, &total, 1, MPI_INT, MPI_SUM, comm, &over);
  for (int i = 0; i < CALLS; ++i) {
    MPI_Request requests[2];
    int numbers[2] = {7, 11}; /* on all ranks: a tool's broadcast moves nothing */
    int all[64];
    MPI_Ibcast(numbers, 2, MPI_INT, 0, comm, &requests[0]);
    const int mine = rank + i;
    MPI_Iallgather(&mine, 1, MPI_INT, all, 1, MPI_INT, comm, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    CHECK(numbers[0] == 7 && numbers[1] == 11);
    for (int each = 0; each < ranks; ++each) CHECK(all[each] == each + i);
    MPI_Barrier(comm);
  }
  MPI_Wait(&over, MPI_STATUS_IGNORE);
  CHECK(total == ranks * (ranks - 1) / 2);
  if (rank == 0) puts("rehearsed: ok");
  MPI_Finalize();
  return 0;
}
