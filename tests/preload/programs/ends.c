/* A rank that ends while the others wait for it in a collective.
 * Argument: abort (by MPI_Abort with code 7), exit (with status 7), or kill (by SIGKILL). */
#include "check.h"

#include <signal.h>
#include <unistd.h>

int main(int argc, char** argv) {
  begin(&argc, &argv);
  CHECK(argc >= 2);
  int sum = 0;
  for (int repetition = 0; repetition < 20; ++repetition) {
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == ranks * (ranks - 1) / 2);
  }
  if (rank == ranks - 1) {
    if (strcmp(argv[1], "abort") == 0) MPI_Abort(MPI_COMM_WORLD, 7);
    if (strcmp(argv[1], "exit") == 0) _exit(7);
    raise(SIGKILL);
  }
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  puts("ends: a collective has succeeded without one of its ranks");
  return 0;
}
