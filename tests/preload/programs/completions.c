/* Non-blocking collectives in every call that completes requests, mixed with messages, and their progress in other
 * calls. */
#include "check.h"

enum { N = 300000, PAIRS = 4, REQUESTS = 3 * PAIRS };

static double from[PAIRS][N], to[PAIRS][N];
static int sent[PAIRS], received[PAIRS];
static MPI_Request requests[REQUESTS];

#include "completion_calls.h"

/* Per pair: an allreduce, a message to the next rank and one from the rank before. */
static void start(int count) {
  const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
  for (int k = 0; k < PAIRS; ++k) {
    for (int i = 0; i < count; ++i) from[k][i] = rank + k + i, to[k][i] = -1;
    sent[k] = 100 * rank + k;
    received[k] = -1;
    MPI_Irecv(&received[k], 1, MPI_INT, before, k, MPI_COMM_WORLD, &requests[3 * k]);
    MPI_Iallreduce(from[k], to[k], count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &requests[3 * k + 1]);
    MPI_Isend(&sent[k], 1, MPI_INT, next, k, MPI_COMM_WORLD, &requests[3 * k + 2]);
  }
}

static void finish(int count) {
  const int before = (rank + ranks - 1) % ranks;
  for (int k = 0; k < PAIRS; ++k) {
    CHECK(received[k] == 100 * before + k);
    for (int i = 0; i < count; ++i) CHECK(to[k][i] == ranks * (ranks - 1) / 2 + (double)ranks * (k + i));
  }
  for (int i = 0; i < REQUESTS; ++i) CHECK(requests[i] == MPI_REQUEST_NULL);
}

static void by_wait(void) {
  for (int i = 0; i < REQUESTS; ++i) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
}

static void by_waitall(void) {
  MPI_Status statuses[REQUESTS];
  CHECK(MPI_Waitall(REQUESTS, requests, statuses) == MPI_SUCCESS);
  CHECK(statuses[0].MPI_TAG == 0 && statuses[3].MPI_TAG == 1);
}

/* MPICH 5.0 ends the job for a list with MPI_REQUEST_NULL and a generalized request that is not yet complete. */
static void by_waitall_with_null(void) {
  MPI_Status statuses[REQUESTS];
  MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
  MPI_Wait(&requests[5], MPI_STATUS_IGNORE);
  CHECK(MPI_Waitall(REQUESTS, requests, statuses) == MPI_SUCCESS);
  int count = -1;
  MPI_Get_count(&statuses[0], MPI_INT, &count);
  CHECK(count == 0 && statuses[0].MPI_SOURCE == MPI_ANY_SOURCE && statuses[0].MPI_TAG == MPI_ANY_TAG);
  CHECK(statuses[3].MPI_TAG == 1 && statuses[6].MPI_TAG == 2);
}

static void by_waitall_with_null_and_no_statuses(void) {
  MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
  MPI_Waitall(REQUESTS, requests, MPI_STATUSES_IGNORE);
}

static void by_waitany(void) {
  for (int left = REQUESTS; left > 0; --left) {
    int index = -1;
    MPI_Waitany(REQUESTS, requests, &index, MPI_STATUS_IGNORE);
    CHECK(index >= 0 && index < REQUESTS && requests[index] == MPI_REQUEST_NULL);
  }
}

static void by_waitsome(void) {
  int indices[REQUESTS], some = 0;
  for (int left = REQUESTS; left > 0; left -= some) {
    MPI_Waitsome(REQUESTS, requests, &some, indices, MPI_STATUSES_IGNORE);
    CHECK(some > 0);
  }
}

static void by_get_status(void) {
  for (int i = 0; i < REQUESTS; ++i) {
    for (int done = 0; !done;) MPI_Request_get_status(requests[i], &done, MPI_STATUS_IGNORE);
    CHECK(requests[i] != MPI_REQUEST_NULL);
    MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
  }
}

/* The operation needs this process while it is inside calls that are no completion of it. */
static void progress_elsewhere(void) {
  MPI_Request request;
  int token = 7;
  memset(to, 0, sizeof to);
  if (rank == 0) to[0][N - 1] = 42;
  MPI_Ibcast(to[0], N, MPI_DOUBLE, 0, MPI_COMM_WORLD, &request);
  if (rank == 0) {
    for (int i = 1; i < ranks; ++i) MPI_Recv(&token, 1, MPI_INT, i, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  } else {
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(to[0][N - 1] == 42);
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
  for (int i = 0; i < 1000; ++i) from[0][i] = 1, to[0][i] = 0;
  MPI_Iallreduce(from[0], to[0], 1000, MPI_DOUBLE, MPI_SUM, comm, &request);
  MPI_Comm_free(&comm);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  for (int i = 0; i < 1000; ++i) CHECK(to[0][i] == ranks);
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  for (int i = 0; i < 20; ++i) MPI_Barrier(MPI_COMM_WORLD);
  void (*const ways[])(void) = {by_wait,
                                by_waitall,
                                by_waitall_with_null,
                                by_waitall_with_null_and_no_statuses,
                                by_waitany,
                                by_waitsome,
                                by_test,
                                by_testall,
                                by_testany,
                                by_testsome,
                                by_get_status};
  const int counts[] = {1, N};
  for (unsigned c = 0; c < sizeof counts / sizeof *counts; ++c) {
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; ++i) {
      start(counts[c]);
      ways[i]();
      finish(counts[c]);
    }
  }
  progress_elsewhere();
  freed_in_flight();
  if (rank == 0) puts("completions: ok");
  MPI_Finalize();
  return 0;
}
