/* Allgathers, as many in flight at once as the argument says, and then a barrier, in which it is found out who serves
 * them faster. */
#include "check.h"

enum { BATCHES = 20, MOST = 8 };

int main(int argc, char** argv) {
  begin(&argc, &argv);
  const int in_flight = argc > 1 ? atoi(argv[1]) : 1;
  CHECK(in_flight >= 1 && in_flight <= MOST);
  const MPI_Comm comm = MPI_COMM_WORLD;
  MPI_Barrier(comm);
  for (int batch = 0; batch < BATCHES; ++batch) {
    MPI_Request requests[MOST];
    int all[MOST][64];
    for (int i = 0; i < in_flight; ++i) MPI_Iallgather(&rank, 1, MPI_INT, all[i], 1, MPI_INT, comm, &requests[i]);
    MPI_Waitall(in_flight, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < in_flight; ++i)
      for (int each = 0; each < ranks; ++each) CHECK(all[i][each] == each);
  }
  MPI_Barrier(comm);
  if (rank == 0) puts("in_flight: ok");
  MPI_Finalize();
  return 0;
}
