/* One barrier, then rooted calls alone: no call waits for all ranks. The roots are ahead in the broadcasts, the others
 * in the gathers, and each rank is late at times. ROOTED_MOVES_NOTHING says that a tool's functions move nothing. */
#include <unistd.h>

#include "check.h"

enum { CALLS = 2000 };

int main(int argc, char** argv) {
  begin(&argc, &argv);
  const MPI_Comm comm = MPI_COMM_WORLD;
  const int is_there = getenv("ROOTED_MOVES_NOTHING") != NULL;
  int all[64];
  MPI_Barrier(comm);
  for (int i = 0; i < CALLS; ++i) {
    if (i % 500 == 3 && i / 500 % ranks == rank) usleep(20000);
    int numbers[2] = {rank == 0 || is_there ? i : -1, rank == 0 || is_there ? 11 : -1};
    MPI_Bcast(numbers, 2, MPI_INT, 0, comm);
    CHECK(numbers[0] == i && numbers[1] == 11);
    for (int each = 0; each < ranks; ++each) all[each] = is_there ? each + i : -1;
    const int mine = rank + i;
    MPI_Gather(&mine, 1, MPI_INT, all, 1, MPI_INT, ranks - 1, comm);
    if (rank == ranks - 1)
      for (int each = 0; each < ranks; ++each) CHECK(all[each] == each + i);
    int sum = is_there ? ranks * (ranks - 1) / 2 + ranks * i : -1;
    MPI_Reduce(&mine, &sum, 1, MPI_INT, MPI_SUM, i % ranks, comm);
    CHECK(rank != i % ranks || sum == ranks * (ranks - 1) / 2 + ranks * i);
  }
  if (rank == 0) puts("rooted: ok");
  MPI_Finalize();
  return 0;
}
