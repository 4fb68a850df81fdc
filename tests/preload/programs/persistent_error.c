/* A persistent collective that fails: the ranks give different lengths. The error handler of the communicator is called
 * with the text of the failure, and a communicator that returns errors returns one. */
#include "check.h"

static int handled;
static int values[100000];

static void handler(MPI_Comm* comm, int* code, ...) {
  (void)comm;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(*code, text, &length);
  if (strstr(text, "penstock") != NULL) handled = 1;
}

static MPI_Request make_wrong(void) {
  MPI_Request request;
  MPI_Allreduce_init(MPI_IN_PLACE, values, rank == 0 ? 100000 : 10, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL,
                     &request);
  return request;
}

/* However it is waited for. */
static void is_returned_by(MPI_Request request) {
  MPI_Start(&request);
  CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) != MPI_SUCCESS);
  MPI_Start(&request);
  MPI_Status status;
  CHECK(MPI_Waitall(1, &request, &status) == MPI_ERR_IN_STATUS);
  CHECK(status.MPI_ERROR != MPI_SUCCESS);
  MPI_Start(&request);
  int result = MPI_SUCCESS;
  for (int is_complete = 0; !is_complete && result == MPI_SUCCESS;)
    result = MPI_Test(&request, &is_complete, MPI_STATUS_IGNORE);
  CHECK(result != MPI_SUCCESS);
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  MPI_Errhandler own;
  MPI_Comm_create_errhandler(handler, &own);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, own);
  MPI_Request request = make_wrong();
  MPI_Start(&request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  CHECK(handled);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN); /* some MPIs take it where no communicator is given */
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  is_returned_by(request);
  MPI_Request other = make_wrong();
  is_returned_by(other);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, own);
  handled = 0;
  MPI_Start(&other);
  MPI_Wait(&other, MPI_STATUS_IGNORE);
  CHECK(handled);
  MPI_Request_free(&other);
  MPI_Request_free(&request);
  if (rank == 0) puts("persistent_error: ok");
  MPI_Errhandler_free(&own);
  MPI_Finalize();
  return 0;
}
