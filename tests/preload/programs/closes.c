/* Each rank opens the same file for itself alone, and all close it at the same time, often. Argument: the path. */
#include "check.h"

int main(int argc, char** argv) {
  begin(&argc, &argv);
  CHECK(argc == 2);
  for (int turn = 0; turn < 30; ++turn) {
    MPI_File file;
    CHECK(MPI_File_open(MPI_COMM_SELF, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file) == MPI_SUCCESS);
    const int number = turn * ranks + rank;
    CHECK(MPI_File_write_at(file, rank * (MPI_Offset)sizeof(int), &number, 1, MPI_INT, MPI_STATUS_IGNORE) ==
          MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(MPI_File_close(&file) == MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  if (rank == 0) puts("closes: ok");
  MPI_Finalize();
  return 0;
}
