/* Broadcasts of a derived type, then of another one, which may have the same handle. */
#include "check.h"

enum { CALLS = 300, LONGER = 50000 };

int main(int argc, char** argv) {
  begin(&argc, &argv);
  static int numbers[LONGER];
  MPI_Barrier(MPI_COMM_WORLD);
  for (int length = 2; length <= LONGER; length += LONGER - 2) {
    MPI_Datatype type;
    MPI_Type_contiguous(length, MPI_INT, &type);
    MPI_Type_commit(&type);
    for (int i = 0; i < CALLS; ++i) {
      MPI_Bcast(numbers, 1, type, 0, MPI_COMM_WORLD);
      MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Type_free(&type);
  }
  if (rank == 0) puts("reused_handles: ok");
  MPI_Finalize();
  return 0;
}
