/* A file that is written and closed when MPI_Finalize deletes an attribute of MPI_COMM_SELF, as HDF5 does it.
 * Argument: the path. */
#include "check.h"

static MPI_File file;

static int end(MPI_Comm comm, int key, void* value, void* extra) {
  int sum = 0;
  (void)comm, (void)key, (void)value, (void)extra;
  CHECK(MPI_File_write_at_all(file, rank * (MPI_Offset)sizeof(int), &rank, 1, MPI_INT, MPI_STATUS_IGNORE) ==
        MPI_SUCCESS);
  CHECK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
  CHECK(sum == ranks * (ranks - 1) / 2);
  CHECK(MPI_File_close(&file) == MPI_SUCCESS);
  if (rank == 0) puts("closes_late: ok");
  return MPI_SUCCESS;
}

int main(int argc, char** argv) {
  int key = MPI_KEYVAL_INVALID;
  begin(&argc, &argv);
  CHECK(argc == 2);
  CHECK(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file) == MPI_SUCCESS);
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, end, &key, NULL);
  MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
