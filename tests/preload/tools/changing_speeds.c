/* A tool of MPI's profiling interface whose first broadcast is slow. Those after it take no time, for they move
 * nothing. */
#include <unistd.h>

#include "../programs/check.h"

enum { SLOW_US = 20000 };

int MPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  static int is_slow = 1;
  (void)buffer, (void)count, (void)type, (void)root, (void)comm;
  if (is_slow) usleep(SLOW_US);
  is_slow = 0;
  return MPI_SUCCESS;
}
