/* Non-blocking collectives make progress in other calls, and outlive their communicator. */
#include "check.h"

enum { N = 300000 };

static double from[N], to[N];

/* The operation needs this process while it is inside calls that are no completion of it. */
static void progress_elsewhere(void) {
  MPI_Request request;
  int token = 7;
  memset(to, 0, sizeof to);
  if (rank == 0) to[N - 1] = 42;
  MPI_Ibcast(to, N, MPI_DOUBLE, 0, MPI_COMM_WORLD, &request);
  if (rank == 0) {
    for (int i = 1; i < ranks; ++i) MPI_Recv(&token, 1, MPI_INT, i, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  } else {
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(to[N - 1] == 42);
    MPI_Send(&token, 1, MPI_INT, 0, 9, MPI_COMM_WORLD);
  }
  /* A served blocking call must let MPI finish a long message that was started before. */
  static double message[N], arrived[N];
  message[N - 1] = rank + 0.5;
  if (rank == 0) {
    MPI_Isend(message, N, MPI_DOUBLE, 1, 10, MPI_COMM_WORLD, &request);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  } else {
    if (rank == 1) {
      MPI_Recv(arrived, N, MPI_DOUBLE, 0, 10, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      CHECK(arrived[N - 1] == 0.5);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

/* Freeing a communicator with an operation in flight. */
static void freed_in_flight(void) {
  MPI_Comm comm;
  MPI_Request request;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  for (int i = 0; i < 20; ++i) MPI_Barrier(comm);
  for (int i = 0; i < 1000; ++i) from[i] = 1, to[i] = 0;
  MPI_Iallreduce(from, to, 1000, MPI_DOUBLE, MPI_SUM, comm, &request);
  MPI_Comm_free(&comm);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  for (int i = 0; i < 1000; ++i) CHECK(to[i] == ranks);
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  MPI_Barrier(MPI_COMM_WORLD);
  progress_elsewhere();
  freed_in_flight();
  if (rank == 0) puts("progress: ok");
  MPI_Finalize();
  return 0;
}
