/* A tool for programs that call MPI_Barrier, then time a call by MPI_Wtime, as the Intel MPI Benchmarks do: the barrier
 * is in their times. It comes before all other libraries, so that it sees barriers whoever serves them. */
#include <dlfcn.h>

#include "../programs/check.h"

static double entered;
static int is_after_barrier;

int MPI_Barrier(MPI_Comm comm) {
  static int (*next)(MPI_Comm);
  if (next == NULL) *(void**)&next = dlsym(RTLD_NEXT, "MPI_Barrier");
  if (!is_after_barrier) entered = PMPI_Wtime(); /* of some barriers, the first */
  const int code = next(comm);
  is_after_barrier = 1;
  return code;
}

double MPI_Wtime(void) {
  const int was_after_barrier = is_after_barrier;
  is_after_barrier = 0;
  return was_after_barrier ? entered : PMPI_Wtime();
}
