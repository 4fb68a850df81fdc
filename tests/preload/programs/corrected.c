/* Broadcasts of a root that is late, so the others' calls take about as long as it sleeps, whatever else the machine
 * does. The tool changing_speeds makes MPI's first one slow, and the others fast. */
#include <unistd.h>

#include "check.h"

enum { CALLS = 1000, COUNT = 1 << 18, LATE_US = 300 };

int main(int argc, char** argv) {
  begin(&argc, &argv);
  static int numbers[COUNT]; /* equal on all ranks: a tool's broadcast moves nothing */
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = 0; i < CALLS; ++i) {
    if (rank == 0) usleep(LATE_US);
    MPI_Bcast(numbers, COUNT, MPI_INT, 0, MPI_COMM_WORLD);
    if (i % 20 == 0) MPI_Barrier(MPI_COMM_WORLD);
  }
  if (rank == 0) puts("corrected: ok");
  MPI_Finalize();
  return 0;
}
