/* Operations with lists of counts among two ranks, which both know what they exchange: short and long calls in turns.
 * What a rank receives in a long one is in its buffer before, since a tool's functions move nothing then. */
#include "check.h"

enum { CALLS = 300, LONG = 1000 };

static int sent[2 * LONG], received[2 * LONG];

int main(int argc, char** argv) {
  begin(&argc, &argv);
  CHECK(ranks == 2);
  const MPI_Comm comm = MPI_COMM_WORLD;
  MPI_Barrier(comm);
  for (int call = 0; call < 2 * CALLS; ++call) {
    const int length = call % 2 == 0 ? 1 : LONG, root = call / 2 % 2;
    /* What a rank has for itself is its own affair. */
    const int sent_counts[2] = {rank == 0 ? 2 : length, rank == 1 ? 2 : length}, from[2] = {0, LONG};
    const int before = length == 1 ? -1 : 7;
    for (int i = 0; i < 2 * LONG; ++i) sent[i] = 7;
    for (int i = 0; i < 2 * LONG; ++i) received[i] = before;
    MPI_Gatherv(sent, sent_counts[root], MPI_INT, received, sent_counts, from, MPI_INT, root, comm);
    CHECK(rank != root || received[LONG * (1 - rank)] == 7);
    for (int i = 0; i < 2 * LONG; ++i) received[i] = before;
    MPI_Scatterv(sent, sent_counts, from, MPI_INT, received, sent_counts[root], MPI_INT, root, comm);
    CHECK(received[0] == 7);
    for (int i = 0; i < 2 * LONG; ++i) received[i] = before;
    MPI_Alltoallv(sent, sent_counts, from, MPI_INT, received, sent_counts, from, MPI_INT, comm);
    CHECK(received[LONG * (1 - rank)] == 7);
    if (call % 5 == 0) MPI_Barrier(comm);
  }
  if (rank == 0) puts("two_ranks: ok");
  MPI_Finalize();
  return 0;
}
