/* A tool of MPI's profiling interface whose first broadcasts are slow. Those after them take no time, for they move
 * nothing. */
#include <unistd.h>

#include "../programs/check.h"

enum { SLOW_CALLS = 3, SLOW_US = 1000 };

int MPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  static int calls = 0;
  (void)buffer, (void)count, (void)type, (void)root, (void)comm;
  if (calls++ < SLOW_CALLS) usleep(SLOW_US);
  return MPI_SUCCESS;
}
