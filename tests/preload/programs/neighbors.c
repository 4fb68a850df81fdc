/* Neighbourhood collectives on a ring, an open line, a graph and a distributed graph, in all forms, against values
 * computed here; and the persistent forms with large counts. */
#include "check.h"

enum { N = 300, MOST = 64 };

static int forms; /* 0: blocking, 1: non-blocking, 2: persistent, 3: persistent with large counts */

#if MPI_VERSION >= 4
#define HAVE_LARGE_COUNTS 1
#else
#define HAVE_LARGE_COUNTS 0
#endif

#define FINISH(again)                                              \
  do {                                                             \
    for (int turn = 0; turn < (again ? 2 : 1); ++turn) {           \
      if (again) CHECK(MPI_Start(&request) == MPI_SUCCESS);        \
      CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS); \
    }                                                              \
    if (again) CHECK(MPI_Request_free(&request) == MPI_SUCCESS);   \
  } while (0)

#define RUN(large, small, ...)                                                              \
  do {                                                                                      \
    MPI_Request request;                                                                    \
    if (forms == 0) {                                                                       \
      CHECK(MPI_##large(__VA_ARGS__, comm) == MPI_SUCCESS);                                 \
    } else if (forms == 1) {                                                                \
      CHECK(MPI_I##small(__VA_ARGS__, comm, &request) == MPI_SUCCESS);                      \
      FINISH(0);                                                                            \
    } else if (forms == 2) {                                                                \
      CHECK(MPI_##large##_init(__VA_ARGS__, comm, MPI_INFO_NULL, &request) == MPI_SUCCESS); \
      FINISH(1);                                                                            \
    }                                                                                       \
  } while (0)

#if HAVE_LARGE_COUNTS
#define RUN_LARGE(large, ...)                                                               \
  do {                                                                                      \
    MPI_Request request;                                                                    \
    CHECK(MPI_##large##_init_c(__VA_ARGS__, comm, MPI_INFO_NULL, &request) == MPI_SUCCESS); \
    FINISH(1);                                                                              \
  } while (0)
#endif

static MPI_Comm comm;
static int sources[MOST], destinations[MOST], source_count, destination_count;
static int from[MOST * N], to[MOST * N];

static int value(int of, int at) { return of * 100000 + at; }

static void fill(void) {
  for (int i = 0; i < MOST * N; ++i) from[i] = value(rank, i), to[i] = -1;
}

/* Block `k` of rank `of` that has come from source `i`; nothing if that does not exist. */
static void expect(const int* got, int i, int at, int count) {
  for (int j = 0; j < count; ++j) CHECK(got[j] == (sources[i] == MPI_PROC_NULL ? -1 : value(sources[i], at + j)));
}

/* The place of this rank among the destinations of source `i`: the topologies here are symmetric. */
static int place_at_source(int i, int is_grid) { return is_grid ? (i ^ 1) : -1; }

static void exchange(int is_grid) {
  fill();
  RUN(Neighbor_allgather, neighbor_allgather, from, N, MPI_INT, to, N, MPI_INT);
  if (forms < 3)
    for (int i = 0; i < source_count; ++i) expect(to + i * N, i, 0, N);
  int counts[MOST], places[MOST], sent[MOST], sent_places[MOST];
  MPI_Aint far[MOST], sent_far[MOST];
  MPI_Datatype types[MOST];
  for (int k = 0; k < MOST; ++k) {
    counts[k] = k < source_count && sources[k] != MPI_PROC_NULL ? sources[k] % 3 * 5 : 7;
    places[k] = k * N - 9; /* the address that is passed lies in the buffer */
    sent[k] = k < destination_count ? rank % 3 * 5 : 0;
    sent_places[k] = k * 20;
    far[k] = places[k] * (MPI_Aint)sizeof(int);
    sent_far[k] = sent_places[k] * (MPI_Aint)sizeof(int);
    types[k] = MPI_INT;
  }
  fill();
  RUN(Neighbor_allgatherv, neighbor_allgatherv, from, rank % 3 * 5, MPI_INT, to + 9, counts, places, MPI_INT);
  if (forms < 3)
    for (int i = 0; i < source_count; ++i) expect(to + i * N, i, 0, counts[i]);
  if (!is_grid) return;
  fill();
  RUN(Neighbor_alltoall, neighbor_alltoall, from, N, MPI_INT, to, N, MPI_INT);
  if (forms < 3)
    for (int i = 0; i < source_count; ++i) expect(to + i * N, i, place_at_source(i, is_grid) * N, N);
  fill();
  RUN(Neighbor_alltoallv, neighbor_alltoallv, from, sent, sent_places, MPI_INT, to + 9, counts, places, MPI_INT);
  if (forms < 3)
    for (int i = 0; i < source_count; ++i)
      expect(to + i * N, i, place_at_source(i, is_grid) * 20, sources[i] == MPI_PROC_NULL ? 7 : counts[i]);
  fill();
  RUN(Neighbor_alltoallw, neighbor_alltoallw, from, sent, sent_far, types, to + 9, counts, far, types);
  if (forms < 3)
    for (int i = 0; i < source_count; ++i)
      expect(to + i * N, i, place_at_source(i, is_grid) * 20, sources[i] == MPI_PROC_NULL ? 7 : counts[i]);
#if HAVE_LARGE_COUNTS
  if (forms == 3) {
    MPI_Count large[MOST], large_sent[MOST];
    for (int k = 0; k < MOST; ++k) large[k] = counts[k], large_sent[k] = sent[k];
    fill();
    RUN_LARGE(Neighbor_alltoall, from, N, MPI_INT, to, N, MPI_INT);
    for (int i = 0; i < source_count; ++i) expect(to + i * N, i, place_at_source(i, is_grid) * N, N);
    fill();
    RUN_LARGE(Neighbor_alltoallw, from, large_sent, sent_far, types, to + 9, large, far, types);
    for (int i = 0; i < source_count; ++i)
      expect(to + i * N, i, place_at_source(i, is_grid) * 20, sources[i] == MPI_PROC_NULL ? 7 : counts[i]);
    int mine = rank + 1, all = 0;
    RUN_LARGE(Allreduce, &mine, &all, 1, MPI_INT, MPI_SUM);
    CHECK(all == ranks * (ranks + 1) / 2);
  }
#endif
}

static void all_forms(int is_grid) {
  for (int i = 0; i < 20; ++i) MPI_Barrier(comm);
  for (forms = 0; forms < (HAVE_LARGE_COUNTS ? 4 : 3); ++forms) exchange(is_grid);
  MPI_Comm_free(&comm);
}

static void grids(void) {
  for (int periodic = 0; periodic < 2; ++periodic) {
    int dims[2] = {0, 0}, periods[2] = {periodic, 1 - periodic};
    MPI_Dims_create(ranks, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &comm);
    source_count = destination_count = 4;
    for (int d = 0; d < 2; ++d) MPI_Cart_shift(comm, d, 1, &sources[2 * d], &sources[2 * d + 1]);
    all_forms(1);
  }
}

/* Each rank gets from itself, from all ranks below, and twice from rank 0. */
static void distributed_graph(void) {
  source_count = destination_count = 0;
  for (int k = 0; k <= rank; ++k) sources[source_count++] = k;
  sources[source_count++] = 0;
  for (int k = rank; k < ranks; ++k) destinations[destination_count++] = k;
  for (int k = 0; rank == 0 && k < ranks; ++k) destinations[destination_count++] = k;
  MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, source_count, sources, MPI_UNWEIGHTED, destination_count, destinations,
                                 MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
  all_forms(0);
}

/* A star. */
static void graph(void) {
  int index[MOST], edges[2 * MOST], count = 0;
  for (int k = 1; k < ranks; ++k) edges[count++] = k;
  index[0] = count;
  for (int k = 1; k < ranks; ++k) edges[count++] = 0, index[k] = count;
  MPI_Graph_create(MPI_COMM_WORLD, ranks, index, edges, 0, &comm);
  source_count = rank == 0 ? ranks - 1 : 1;
  for (int k = 0; k < source_count; ++k) sources[k] = rank == 0 ? k + 1 : 0;
  destination_count = source_count;
  all_forms(0);
}

/* A chain whose last rank has no neighbours. MPI compares lengths along each edge only: the blocks that a rank sends
 * are longer than those that it receives. One side has items of no bytes where the other has a count of 0. */
static void chain(void) {
  source_count = rank > 0 && rank < ranks - 1, destination_count = rank < ranks - 2;
  sources[0] = rank - 1, destinations[0] = rank + 1;
  MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, source_count, sources, MPI_UNWEIGHTED, destination_count, destinations,
                                 MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
  MPI_Datatype nothing, pair;
  MPI_Type_contiguous(0, MPI_INT, &nothing);
  MPI_Type_vector(2, 1, 2, MPI_INT, &pair);
  MPI_Type_commit(&nothing);
  MPI_Type_commit(&pair);
  const int sent = destination_count ? 2 * rank + 4 : 0, received = source_count ? 2 * rank + 2 : 0;
  for (int i = 0; i < 20; ++i) MPI_Barrier(comm);
  for (forms = 0; forms < 3; ++forms) {
    fill();
    RUN(Neighbor_alltoall, neighbor_alltoall, from, sent, MPI_INT, to, received, MPI_INT);
    for (int i = 0; i < source_count; ++i) expect(to, i, 0, received);
    CHECK(to[received] == -1);
    fill();
    RUN(Neighbor_allgather, neighbor_allgather, from, sent, MPI_INT, to, received / 2, pair);
    for (int i = 0; i < received; ++i) CHECK(to[i / 2 * 3 + i % 2 * 2] == value(sources[0], i));
    fill();
    RUN(Neighbor_alltoall, neighbor_alltoall, from, 3, nothing, to, 0, MPI_INT);
    RUN(Neighbor_allgather, neighbor_allgather, from, 0, MPI_INT, to, 5, nothing);
    int none = 0, many = 4, at = 0;
    MPI_Aint far = 0;
    MPI_Datatype ints = MPI_INT;
    RUN(Neighbor_alltoallv, neighbor_alltoallv, from, &many, &at, nothing, to, &none, &at, MPI_INT);
    RUN(Neighbor_alltoallw, neighbor_alltoallw, from, &none, &far, &ints, to, &many, &far, &nothing);
    CHECK(to[0] == -1);
  }
  MPI_Type_free(&nothing);
  MPI_Type_free(&pair);
  MPI_Comm_free(&comm);
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  CHECK(2 * ranks + 2 <= MOST);
  grids();
  distributed_graph();
  graph();
  chain();
  if (rank == 0) puts("neighbors: ok");
  MPI_Finalize();
  return 0;
}
