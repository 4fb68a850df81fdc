/* MPI does not let collectives be cancelled. MPI_Cancel says so, and the operation completes. */
#include "check.h"

int main(int argc, char** argv) {
  begin(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Barrier(MPI_COMM_WORLD);
  for (int is_persistent = 0; is_persistent < 2; ++is_persistent) {
    int mine = 0, all = 0;
    MPI_Request request;
    if (is_persistent) MPI_Allreduce_init(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    for (int turn = 1; turn <= 3; ++turn) {
      mine = turn * (rank + 1), all = -1;
      if (is_persistent)
        MPI_Start(&request);
      else
        MPI_Iallreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
      int class = MPI_SUCCESS, is_cancelled = -1;
      MPI_Error_class(MPI_Cancel(&request), &class);
      CHECK(class == MPI_ERR_REQUEST);
      MPI_Status status;
      CHECK(MPI_Wait(&request, &status) == MPI_SUCCESS);
      MPI_Test_cancelled(&status, &is_cancelled);
      CHECK(!is_cancelled && all == turn * ranks * (ranks + 1) / 2);
    }
    if (is_persistent) MPI_Request_free(&request);
  }
  if (rank == 0) puts("cancels: ok");
  MPI_Finalize();
  return 0;
}
