/* A persistent collective that fails: the ranks give different lengths. The error handler of the communicator is called
 * with the text of the failure. */
#include "check.h"

static int handled;

static void handler(MPI_Comm* comm, int* code, ...) {
  (void)comm;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(*code, text, &length);
  if (strstr(text, "penstock") != NULL) handled = 1;
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  MPI_Errhandler own;
  MPI_Comm_create_errhandler(handler, &own);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, own);
  static int values[100000];
  MPI_Request request;
  MPI_Allreduce_init(MPI_IN_PLACE, values, rank == 0 ? 100000 : 10, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL,
                     &request);
  MPI_Start(&request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  CHECK(handled);
  MPI_Request_free(&request);
  if (rank == 0) puts("persistent_error: ok");
  MPI_Errhandler_free(&own);
  MPI_Finalize();
  return 0;
}
