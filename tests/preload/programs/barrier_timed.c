/* A program for tools/barrier_timed.c: rank 0 prints whether the time after a barrier is one from before its end. */
#include "check.h"

int main(int argc, char** argv) {
  begin(&argc, &argv);
  for (int i = 0; i < 20; ++i) {
    const double before = PMPI_Wtime();
    MPI_Barrier(MPI_COMM_WORLD);
    const double after = PMPI_Wtime(), first = MPI_Wtime(), second = MPI_Wtime();
    CHECK(before <= first && after <= second);
    if (rank == 0) printf("%s\n", first < after ? "with the barrier" : "without");
  }
  MPI_Finalize();
  return 0;
}
