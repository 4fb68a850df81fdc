/* Each collective once with OTHER_COUNT items and once with MARKED_COUNT, for tests/preload/tools/wrong_results.c,
 * whose results on rank 1 are wrong. Prints the sum that MPI_Allreduce gave there. */
#include "../tools/wrong_results.h"

#include "check.h"

enum { MOST_RANKS = 16 };

static double from[MOST_RANKS * MARKED_COUNT], to[MOST_RANKS * MARKED_COUNT];

static void clear(void) {
  for (int i = 0; i < MOST_RANKS * MARKED_COUNT; ++i) from[i] = 0.1 * (rank + 1) + i, to[i] = -1;
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  CHECK(ranks > 1 && ranks <= MOST_RANKS);
  const MPI_Comm comm = MPI_COMM_WORLD;
  double sums[2] = {0, 0};
  for (int marked = 0; marked < 2; ++marked) {
    const int n = marked ? MARKED_COUNT : OTHER_COUNT;
    int counts[MOST_RANKS], places[MOST_RANKS];
    for (int i = 0; i < ranks; ++i) counts[i] = n, places[i] = i * n;
    clear();
    MPI_Allreduce(from, to, n, MPI_DOUBLE, MPI_SUM, comm);
    sums[marked] = to[0];
    MPI_Allreduce(from, to, n, MPI_DOUBLE, MPI_MAX, comm);
    MPI_Bcast(from, n, MPI_DOUBLE, 0, comm);
    clear();
    MPI_Reduce(from, to, n, MPI_DOUBLE, MPI_SUM, 1, comm);
    MPI_Reduce_scatter_block(from, to, n, MPI_DOUBLE, MPI_SUM, comm);
    MPI_Reduce_scatter(from, to, counts, MPI_DOUBLE, MPI_SUM, comm);
    MPI_Scan(from, to, n, MPI_DOUBLE, MPI_SUM, comm);
    MPI_Exscan(from, to, n, MPI_DOUBLE, MPI_MIN, comm);
    MPI_Gather(from, n, MPI_DOUBLE, to, n, MPI_DOUBLE, 1, comm);
    MPI_Scatter(from, n, MPI_DOUBLE, to, n, MPI_DOUBLE, 0, comm);
    MPI_Allgather(from, n, MPI_DOUBLE, to, n, MPI_DOUBLE, comm);
    MPI_Alltoall(from, n, MPI_DOUBLE, to, n, MPI_DOUBLE, comm);
    MPI_Alltoallv(from, counts, places, MPI_DOUBLE, to, counts, places, MPI_DOUBLE, comm);
  }
  /* The program has got what MPI returned, as without Penstock. */
  double right = 0;
  for (int i = 0; i < ranks; ++i) right += 0.1 * (i + 1);
  if (rank == 1) printf("off by %.1e and %.1e\n", sums[0] / right - 1, sums[1] / right - 1);
  MPI_Finalize();
  return 0;
}
