/* Every collective, blocking, non-blocking and persistent, with several types, roots and MPI_IN_PLACE, against values
 * computed here. */
#include "check.h"

enum { N = 1000, MOST_RANKS = 16 };

static int forms; /* 0: blocking, 1: non-blocking, 2: persistent */

#define RUN(large, small, ...)                                                              \
  do {                                                                                      \
    if (forms == 0) {                                                                       \
      CHECK(MPI_##large(__VA_ARGS__, comm) == MPI_SUCCESS);                                 \
    } else if (forms == 1) {                                                                \
      MPI_Request request;                                                                  \
      CHECK(MPI_I##small(__VA_ARGS__, comm, &request) == MPI_SUCCESS);                      \
      CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);                          \
      CHECK(request == MPI_REQUEST_NULL);                                                   \
    } else {                                                                                \
      MPI_Request request;                                                                  \
      CHECK(MPI_##large##_init(__VA_ARGS__, comm, MPI_INFO_NULL, &request) == MPI_SUCCESS); \
      CHECK(MPI_Start(&request) == MPI_SUCCESS);                                            \
      CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);                          \
      CHECK(request != MPI_REQUEST_NULL);                                                   \
      CHECK(MPI_Request_free(&request) == MPI_SUCCESS);                                     \
    }                                                                                       \
  } while (0)

static MPI_Comm comm;
static double from[MOST_RANKS * N], to[MOST_RANKS * N];

static double value(int of, int at) { return of * 1000.0 + at; }
static double sum(int at, int many) { return many * (many - 1) / 2 * 1000.0 + (double)many * at; }

static void fill(int count) {
  for (int i = 0; i < count; ++i) from[i] = value(rank, i), to[i] = -1;
}

static void reductions(void) {
  fill(N);
  RUN(Allreduce, allreduce, from, to, N, MPI_DOUBLE, MPI_SUM);
  for (int i = 0; i < N; ++i) CHECK(to[i] == sum(i, ranks));
  memcpy(to, from, sizeof(double) * N);
  RUN(Allreduce, allreduce, MPI_IN_PLACE, to, N, MPI_DOUBLE, MPI_SUM);
  for (int i = 0; i < N; ++i) CHECK(to[i] == sum(i, ranks));
  for (int root = 0; root < ranks; ++root) {
    fill(N);
    RUN(Reduce, reduce, from, to, N, MPI_DOUBLE, MPI_MAX, root);
    for (int i = 0; i < N; ++i) CHECK(to[i] == (rank == root ? value(ranks - 1, i) : -1));
    memcpy(to, from, sizeof(double) * N);
    RUN(Reduce, reduce, rank == root ? MPI_IN_PLACE : from, to, N, MPI_DOUBLE, MPI_SUM, root);
    if (rank == root)
      for (int i = 0; i < N; ++i) CHECK(to[i] == sum(i, ranks));
  }
  fill(N);
  RUN(Scan, scan, from, to, N, MPI_DOUBLE, MPI_SUM);
  for (int i = 0; i < N; ++i) CHECK(to[i] == sum(i, rank + 1));
  fill(N);
  RUN(Exscan, exscan, from, to, N, MPI_DOUBLE, MPI_SUM);
  for (int i = 0; i < N; ++i) CHECK(to[i] == (rank == 0 ? -1 : sum(i, rank)));
  fill(N * ranks);
  RUN(Reduce_scatter_block, reduce_scatter_block, from, to, N, MPI_DOUBLE, MPI_SUM);
  for (int i = 0; i < N; ++i) CHECK(to[i] == sum(i + rank * N, ranks));
  int counts[MOST_RANKS], before = 0;
  for (int i = 0; i < ranks; ++i) counts[i] = i * 7;
  for (int i = 0; i < rank; ++i) before += counts[i];
  fill(N);
  RUN(Reduce_scatter, reduce_scatter, from, to, counts, MPI_DOUBLE, MPI_SUM);
  for (int i = 0; i < counts[rank]; ++i) CHECK(to[i] == sum(i + before, ranks));
  struct {
    double value;
    int place;
  } mine = {rank == 1 ? 9 : 1, rank}, most = {0, 0};
  RUN(Allreduce, allreduce, &mine, &most, 1, MPI_DOUBLE_INT, MPI_MAXLOC);
  CHECK(most.value == 9 && most.place == 1);
  int bits = 1 << rank, all = 0;
  RUN(Allreduce, allreduce, &bits, &all, 1, MPI_INT, MPI_BOR);
  CHECK(all == (1 << ranks) - 1);
  long shared = rank + 5, least = 0;
  RUN(Allreduce, allreduce, &shared, &least, 1, MPI_LONG, MPI_MIN);
  CHECK(least == 5);
}

/* Rank a sends a + b + 1 numbers to rank b: from every second place if b is odd. */
static void exchange_of_types(void) {
  MPI_Datatype strided[MOST_RANKS], types[MOST_RANKS];
  int counts[MOST_RANKS], sent[MOST_RANKS], received[MOST_RANKS], into[MOST_RANKS];
  for (int k = 0; k < ranks; ++k) {
    const int many = rank + k + 1;
    MPI_Type_vector(many, 1, 2, MPI_DOUBLE, &strided[k]);
    MPI_Type_commit(&strided[k]);
    counts[k] = k % 2 == 1 ? 1 : many;
    types[k] = k % 2 == 1 ? strided[k] : MPI_DOUBLE;
    sent[k] = k * 50 * (int)sizeof(double);
    received[k] = many * (int)sizeof(double);
    into[k] = (k * 40 - 1000) * (int)sizeof(double); /* behind the address that is passed */
  }
  MPI_Datatype bytes[MOST_RANKS];
  for (int k = 0; k < ranks; ++k) bytes[k] = MPI_BYTE;
  fill(N);
  RUN(Alltoallw, alltoallw, from, counts, sent, types, to + 1000, received, into, bytes);
  for (int k = 0; k < ranks; ++k) {
    for (int i = 0; i < rank + k + 1; ++i) CHECK(to[k * 40 + i] == value(k, rank * 50 + (rank % 2 == 1 ? 2 * i : i)));
    CHECK(to[k * 40 + rank + k + 1] == -1);
  }
  /* In place, and without anything for rank 0. */
  for (int k = 0; k < ranks; ++k)
    if (rank == 0 || k == 0) counts[k] = 0;
  fill(N);
  memcpy(to, from, sizeof(double) * N);
  RUN(Alltoallw, alltoallw, MPI_IN_PLACE, NULL, NULL, NULL, to, counts, sent, types);
  for (int k = 0; k < ranks; ++k)
    for (int i = 0; i < rank + k + 1; ++i) {
      const int mine = k * 50 + (k % 2 == 1 ? 2 * i : i), theirs = rank * 50 + (rank % 2 == 1 ? 2 * i : i);
      CHECK(to[mine] == (counts[k] == 0 ? value(rank, mine) : value(k, theirs)));
    }
  for (int k = 0; k < ranks; ++k) MPI_Type_free(&strided[k]);
}

static void movements(void) {
  int counts[MOST_RANKS], places[MOST_RANKS], total = 0;
  for (int i = 0; i < ranks; ++i) counts[i] = 3 + i, places[i] = total, total += counts[i] + 2;
  for (int root = 0; root < ranks; ++root) {
    fill(N);
    if (rank == root) memcpy(to, from, sizeof(double) * N);
    RUN(Bcast, bcast, to, N, MPI_DOUBLE, root);
    for (int i = 0; i < N; ++i) CHECK(to[i] == value(root, i));
    fill(N * ranks);
    RUN(Gather, gather, from, N, MPI_DOUBLE, to, N, MPI_DOUBLE, root);
    for (int i = 0; i < N * ranks; ++i) CHECK(to[i] == (rank == root ? value(i / N, i % N) : -1));
    fill(N * ranks);
    RUN(Scatter, scatter, from, N, MPI_DOUBLE, to, N, MPI_DOUBLE, root);
    for (int i = 0; i < N; ++i) CHECK(to[i] == value(root, i + rank * N));
    fill(N);
    RUN(Gatherv, gatherv, from, counts[rank], MPI_DOUBLE, to, counts, places, MPI_DOUBLE, root);
    for (int k = 0; rank == root && k < ranks; ++k) {
      for (int i = 0; i < counts[k]; ++i) CHECK(to[places[k] + i] == value(k, i));
      CHECK(to[places[k] + counts[k]] == -1);
    }
    fill(N);
    RUN(Scatterv, scatterv, from, counts, places, MPI_DOUBLE, to, counts[rank], MPI_DOUBLE, root);
    for (int i = 0; i < counts[rank]; ++i) CHECK(to[i] == value(root, places[rank] + i));
    CHECK(to[counts[rank]] == -1);
  }
  fill(N * ranks);
  RUN(Allgather, allgather, from, N, MPI_DOUBLE, to, N, MPI_DOUBLE);
  for (int i = 0; i < N * ranks; ++i) CHECK(to[i] == value(i / N, i % N));
  fill(N * ranks);
  for (int i = 0; i < N; ++i) to[rank * N + i] = value(rank, i);
  RUN(Allgather, allgather, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, to, N, MPI_DOUBLE);
  for (int i = 0; i < N * ranks; ++i) CHECK(to[i] == value(i / N, i % N));
  fill(N);
  RUN(Allgatherv, allgatherv, from, counts[rank], MPI_DOUBLE, to, counts, places, MPI_DOUBLE);
  for (int k = 0; k < ranks; ++k)
    for (int i = 0; i < counts[k]; ++i) CHECK(to[places[k] + i] == value(k, i));
  fill(N * ranks);
  RUN(Alltoall, alltoall, from, N, MPI_DOUBLE, to, N, MPI_DOUBLE);
  for (int i = 0; i < N * ranks; ++i) CHECK(to[i] == value(i / N, rank * N + i % N));
  int received[MOST_RANKS], into[MOST_RANKS];
  for (int k = 0; k < ranks; ++k) received[k] = counts[rank], into[k] = k * (counts[rank] + 1);
  fill(N);
  RUN(Alltoallv, alltoallv, from, counts, places, MPI_DOUBLE, to, received, into, MPI_DOUBLE);
  for (int k = 0; k < ranks; ++k)
    for (int i = 0; i < received[k]; ++i) CHECK(to[into[k] + i] == value(k, places[rank] + i));
  /* Negative displacements, from the end of the buffer. */
  for (int k = 0; k < ranks; ++k) into[k] -= N;
  fill(N);
  RUN(Alltoallv, alltoallv, from, counts, places, MPI_DOUBLE, to + N, received, into, MPI_DOUBLE);
  for (int k = 0; k < ranks; ++k)
    for (int i = 0; i < received[k]; ++i) CHECK(to[N + into[k] + i] == value(k, places[rank] + i));
  exchange_of_types();
}

static void datatypes(void) {
  MPI_Datatype column, absolute, shuffled;
  MPI_Type_vector(10, 1, 10, MPI_DOUBLE, &column);
  MPI_Type_commit(&column);
  fill(100);
  /* One side has holes, the other none; only some ranks pass a derived type. */
  if (rank == 0) {
    RUN(Bcast, bcast, from, 1, column, 0);
  } else {
    RUN(Bcast, bcast, to, 10, MPI_DOUBLE, 0);
    for (int i = 0; i < 10; ++i) CHECK(to[i] == value(0, 10 * i));
  }
  fill(N);
  RUN(Allgather, allgather, from, 1, column, to, 10, MPI_DOUBLE);
  for (int i = 0; i < 10 * ranks; ++i) CHECK(to[i] == value(i / 10, 10 * (i % 10)));
  MPI_Aint place;
  int length = 5;
  MPI_Get_address(to, &place);
  MPI_Type_create_hindexed(1, &length, &place, MPI_DOUBLE, &absolute);
  MPI_Type_commit(&absolute);
  fill(5);
  if (rank == 0) memcpy(to, from, 5 * sizeof(double));
  RUN(Bcast, bcast, MPI_BOTTOM, 1, absolute, 0);
  for (int i = 0; i < 5; ++i) CHECK(to[i] == value(0, i));
  int lengths[2] = {2, 1}, places[2] = {3, 0};
  MPI_Type_indexed(2, lengths, places, MPI_DOUBLE, &shuffled);
  MPI_Type_commit(&shuffled);
  fill(N);
  RUN(Gather, gather, from, 3, MPI_DOUBLE, to, 1, shuffled, 0);
  if (rank == 0) CHECK(to[3] == value(0, 0) && to[4] == value(0, 1) && to[0] == value(0, 2));
  struct {
    double value;
    int place;
  } pair = {rank + 0.5, rank}, pairs[MOST_RANKS];
  RUN(Allgather, allgather, &pair, 1, MPI_DOUBLE_INT, pairs, 1, MPI_DOUBLE_INT);
  for (int i = 0; i < ranks; ++i) CHECK(pairs[i].value == i + 0.5 && pairs[i].place == i);
  MPI_Type_free(&column);
  MPI_Type_free(&absolute);
  MPI_Type_free(&shuffled);
}

static void add(void* in, void* out, int* count, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *count; ++i) ((int*)out)[i] += ((int*)in)[i];
}

/* What Penstock leaves to MPI must work as before. */
static void left_to_mpi(void) {
  MPI_Op own;
  MPI_Op_create(add, 1, &own);
  int mine = rank + 1, all = 0;
  RUN(Allreduce, allreduce, &mine, &all, 1, MPI_INT, own);
  CHECK(all == ranks * (ranks + 1) / 2);
  MPI_Op_free(&own);
  MPI_Errhandler before;
  MPI_Comm_get_errhandler(comm, &before);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  CHECK(MPI_Bcast(&mine, 1, MPI_INT, ranks + 3, comm) != MPI_SUCCESS);
  CHECK(MPI_Bcast(&mine, 1, MPI_DATATYPE_NULL, 0, comm) != MPI_SUCCESS);
  MPI_Comm_set_errhandler(comm, before);
  MPI_Errhandler_free(&before);
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  CHECK(ranks <= MOST_RANKS);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  for (int i = 0; i < 20; ++i) MPI_Barrier(comm);
  for (forms = 0; forms < 3; ++forms) {
    reductions();
    movements();
    datatypes();
    left_to_mpi();
  }
  MPI_Request request;
  MPI_Ibarrier(comm, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Barrier_init(comm, MPI_INFO_NULL, &request);
  MPI_Start(&request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Request_free(&request);
  MPI_Comm_free(&comm);
  if (rank == 0) puts("collectives: ok");
  MPI_Finalize();
  return 0;
}
