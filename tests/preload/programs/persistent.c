/* Persistent collectives: starts in any order, between persistent messages; requests and communicators that are freed
 * early. */
#include "check.h"

enum { N = 30000, PAIRS = 4, REQUESTS = 3 * PAIRS };

static double from[PAIRS][N], to[PAIRS][N];
static int sent[PAIRS], received[PAIRS];
static MPI_Request requests[REQUESTS];

static void make(void) {
  const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
  for (int k = 0; k < PAIRS; ++k) {
    MPI_Recv_init(&received[k], 1, MPI_INT, before, k, MPI_COMM_WORLD, &requests[3 * k]);
    MPI_Allreduce_init(from[k], to[k], N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[3 * k + 1]);
    MPI_Send_init(&sent[k], 1, MPI_INT, next, k, MPI_COMM_WORLD, &requests[3 * k + 2]);
  }
}

static void fill(int round) {
  for (int k = 0; k < PAIRS; ++k) {
    for (int i = 0; i < N; ++i) from[k][i] = rank + k + i + round, to[k][i] = -1;
    sent[k] = 100 * rank + k + round;
    received[k] = -1;
  }
}

static void finish(int round) {
  const int before = (rank + ranks - 1) % ranks;
  for (int k = 0; k < PAIRS; ++k) {
    CHECK(received[k] == 100 * before + k + round);
    for (int i = 0; i < N; ++i) CHECK(to[k][i] == ranks * (ranks - 1) / 2 + (double)ranks * (k + i + round));
  }
}

/* MPI matches persistent operations when they are made, so the ranks may start them in different orders. */
static void in_any_order(void) {
  for (int shift = 0; shift < PAIRS; ++shift) {
    fill(shift);
    for (int k = 0; k < PAIRS; ++k) {
      MPI_Start(&requests[3 * k]);
      MPI_Start(&requests[3 * k + 2]);
    }
    for (int k = 0; k < PAIRS; ++k) MPI_Start(&requests[3 * ((k + rank + shift) % PAIRS) + 1]);
    MPI_Waitall(REQUESTS, requests, MPI_STATUSES_IGNORE);
    finish(shift);
  }
}

static void in_order_of_rank(void) {
  fill(9);
  for (int k = 0; k < PAIRS; ++k) {
    MPI_Start(&requests[3 * k]);
    MPI_Start(&requests[3 * k + 2]);
  }
  for (int k = 0; k < PAIRS; ++k) MPI_Start(&requests[3 * (rank % 2 ? PAIRS - 1 - k : k) + 1]);
  int token = 0;
  MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % ranks, 77, &token, 1, MPI_INT, (rank + ranks - 1) % ranks, 77,
               MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Waitall(REQUESTS, requests, MPI_STATUSES_IGNORE);
  finish(9);
}

/* More live requests than a communicator has places for: the rest is MPI's. */
static void many(void) {
  enum { MANY = 70 };
  static MPI_Request all[MANY];
  static int values[MANY];
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  for (int i = 0; i < MANY; ++i) MPI_Bcast_init(&values[i], 1, MPI_INT, i % ranks, comm, MPI_INFO_NULL, &all[i]);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < MANY; ++i) values[i] = rank == i % ranks ? 1000 * round + i : -1;
    MPI_Startall(MANY, all);
    MPI_Waitall(MANY, all, MPI_STATUSES_IGNORE);
    for (int i = 0; i < MANY; ++i) CHECK(values[i] == 1000 * round + i);
  }
  for (int i = 0; i < MANY; ++i) MPI_Request_free(&all[i]);
  MPI_Comm_free(&comm);
}

static void freed_early(void) {
  MPI_Comm comm;
  MPI_Request kept, active;
  int mine = rank + 1, sum = 0, other = 0;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Allreduce_init(&mine, &sum, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &kept);
  MPI_Allreduce_init(&mine, &other, 1, MPI_INT, MPI_MAX, comm, MPI_INFO_NULL, &active);
  MPI_Start(&active);
  MPI_Wait(&active, MPI_STATUS_IGNORE);
  MPI_Request_free(&active);
  CHECK(active == MPI_REQUEST_NULL && other == ranks);
  MPI_Start(&kept);
  MPI_Comm_free(&comm);
  MPI_Wait(&kept, MPI_STATUS_IGNORE);
  CHECK(sum == ranks * (ranks + 1) / 2);
  MPI_Request_free(&kept);
}

/* Lives of requests take no more and more places. */
static void lives(void) {
  for (int life = 0; life < 100; ++life) {
    MPI_Request request;
    int mine = rank + life, most = -1;
    MPI_Allreduce_init(&mine, &most, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    for (int i = 0; i < 3; ++i) {
      MPI_Start(&request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      CHECK(most == ranks - 1 + life);
    }
    MPI_Request_free(&request);
  }
}

int main(int argc, char** argv) {
  if (argc > 1) {
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  } else {
    begin(&argc, &argv);
  }
  make();
  in_order_of_rank();
  in_any_order();
  for (int i = 0; i < REQUESTS; ++i) MPI_Request_free(&requests[i]);
  many();
  freed_early();
  lives();
  if (rank == 0) puts("persistent: ok");
  MPI_Finalize();
  return 0;
}
