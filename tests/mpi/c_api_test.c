/* Tests the C API from a C11 program. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "penstock/penstock_mpi.h"

#define CHECK(condition)                                                                                  \
  do {                                                                                                    \
    if (!(condition)) {                                                                                   \
      fprintf(stderr, "%s:%d: %s is false; %s\n", __FILE__, __LINE__, #condition, penstock_last_error()); \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                                       \
    }                                                                                                     \
  } while (0)

enum { kCount = 3000 };

static void collectives(penstock_comm* comm) {
  const int rank = penstock_comm_rank(comm);
  const int size = penstock_comm_size(comm);
  const int root = size - 1;
  int32_t mine[kCount];
  int32_t got[kCount];
  int32_t* all = calloc((size_t)size * kCount, sizeof *all);
  CHECK(all != NULL);
  for (int i = 0; i < kCount; ++i) mine[i] = rank + i;

  CHECK(penstock_barrier(comm) == 0);
  CHECK(penstock_allreduce(comm, mine, got, kCount, PENSTOCK_int32, PENSTOCK_sum) == 0);
  for (int i = 0; i < kCount; ++i) CHECK(got[i] == size * i + size * (size - 1) / 2);
  memcpy(got, mine, sizeof got);
  CHECK(penstock_allreduce(comm, PENSTOCK_IN_PLACE, got, kCount, PENSTOCK_int32, PENSTOCK_max) == 0);
  for (int i = 0; i < kCount; ++i) CHECK(got[i] == size - 1 + i);
  CHECK(penstock_reduce(comm, mine, rank == root ? got : NULL, kCount, PENSTOCK_int32, PENSTOCK_min, root) == 0);
  if (rank == root) CHECK(got[7] == 7);
  CHECK(penstock_gather(comm, mine, rank == root ? all : NULL, kCount, PENSTOCK_int32, root) == 0);
  CHECK(penstock_bcast(comm, all, (uint64_t)size * kCount, PENSTOCK_int32, root) == 0);
  for (int r = 0; r < size; ++r) CHECK(all[r * kCount + 5] == r + 5);
  memset(got, 0, sizeof got);
  CHECK(penstock_scatter(comm, rank == root ? all : NULL, got, kCount, PENSTOCK_int32, root) == 0);
  CHECK(memcmp(got, mine, sizeof got) == 0);
  memset(all, 0, (size_t)size * sizeof mine);
  CHECK(penstock_allgather(comm, mine, all, kCount, PENSTOCK_int32) == 0);
  for (int r = 0; r < size; ++r) CHECK(all[r * kCount + kCount - 1] == r + kCount - 1);

  penstock_request* first = NULL;
  penstock_request* second = NULL;
  double x = rank;
  double y = 0;
  CHECK(penstock_iallreduce(comm, &x, &y, 1, PENSTOCK_float64, PENSTOCK_sum, &first) == 0);
  CHECK(penstock_ibarrier(comm, &second) == 0);
  CHECK(penstock_wait(&second) == 0 && second == NULL);
  int complete = 0;
  while (!complete) {
    CHECK(penstock_test(&first, &complete) == 0);
    if (!complete) usleep(100);
  }
  CHECK(first == NULL && y == size * (size - 1) / 2.0);
  CHECK(penstock_wait(&first) == 0);
  free(all);
}

/* Runs a chain algorithm, then the automatic choice. */
static void algorithms_by_name(penstock_comm* comm) {
  const int size = penstock_comm_size(comm);
  int32_t values[kCount] = {0};
  char text[1 << 16];
  CHECK(penstock_comm_use(comm, PENSTOCK_bcast, "chain", 1000) == 0);
  CHECK(penstock_bcast(comm, values, kCount, PENSTOCK_int32, 0) == 0);
  CHECK(penstock_comm_report(comm, text, sizeof text, NULL) == 0);
  CHECK(strstr(text, "bcast/chain") != NULL && strstr(text, "asked for by name") != NULL);
  CHECK(penstock_comm_use(comm, PENSTOCK_bcast, "native", 0) == 0);
  CHECK(penstock_bcast(comm, values, kCount, PENSTOCK_int32, 0) == 0);
  CHECK(penstock_comm_use(comm, PENSTOCK_bcast, NULL, 0) == 0);
  CHECK(penstock_bcast(comm, values, kCount, PENSTOCK_int32, 0) == 0);

  CHECK(penstock_comm_use(comm, PENSTOCK_bcast, "rabenseifner", 0) == PENSTOCK_invalid_argument);
  CHECK(strstr(penstock_last_error(), "chain") != NULL);
  CHECK(penstock_comm_use(comm, (penstock_collective)999, "chain", 0) == PENSTOCK_invalid_argument);
  CHECK(penstock_comm_use(NULL, PENSTOCK_bcast, "chain", 0) == PENSTOCK_invalid_argument);
  if (size == 3) { /* an algorithm that does not fit is an error of the call */
    CHECK(penstock_comm_use(comm, PENSTOCK_allgather, "recursive_doubling", 0) == 0);
    int32_t all[3];
    CHECK(penstock_allgather(comm, values, all, 1, PENSTOCK_int32) == PENSTOCK_invalid_argument);
    CHECK(penstock_comm_use(comm, PENSTOCK_allgather, "", 0) == 0);
    CHECK(penstock_allgather(comm, values, all, 1, PENSTOCK_int32) == 0);
  }
}

/* Every rank sends r + 1 elements with its own number to rank r. */
static void blocks(penstock_comm* comm) {
  const int rank = penstock_comm_rank(comm);
  const int size = penstock_comm_size(comm);
  const int root = size / 2;
  const size_t ranks = (size_t)size;
  uint64_t* counts = calloc(3 * ranks, sizeof *counts);
  int32_t* mine = calloc(ranks * (ranks + 1), sizeof *mine);
  int32_t* got = calloc(ranks * (ranks + 2), sizeof *got);
  CHECK(counts != NULL && mine != NULL && got != NULL);
  uint64_t* own_counts = counts + ranks;
  uint64_t* places = own_counts + ranks;
  for (int r = 0; r < size; ++r) {
    counts[r] = (uint64_t)r + 1;
    own_counts[r] = (uint64_t)rank + 1;
    places[r] = (uint64_t)((size - 1 - r) * (size + 1)); /* backwards, with gaps */
  }
  for (int i = 0; i < size * (size + 1); ++i) mine[i] = rank;
  const int all = size * (size - 1) / 2;

  CHECK(penstock_alltoallv(comm, mine, counts, NULL, got, own_counts, places, PENSTOCK_int32) == 0);
  for (int r = 0; r < size; ++r) CHECK(got[places[r]] == r && got[places[r] + own_counts[r] - 1] == r);
  CHECK(penstock_allgatherv(comm, mine, own_counts[0], got, counts, places, PENSTOCK_int32) == 0);
  for (int r = 0; r < size; ++r) CHECK(got[places[r]] == r && got[places[r] + counts[r] - 1] == r);
  memset(got, 0, ranks * ranks * sizeof *got);
  CHECK(penstock_gatherv(comm, mine, own_counts[0], got, counts, places, PENSTOCK_int32, root) == 0);
  if (rank == root)
    for (int r = 0; r < size; ++r) CHECK(got[places[r]] == r && got[places[r] + counts[r] - 1] == r);
  CHECK(penstock_scatterv(comm, got, counts, places, mine, own_counts[0], PENSTOCK_int32, root) == 0);
  CHECK(mine[0] == rank && mine[rank] == rank);
  CHECK(penstock_alltoall(comm, mine, got, 1, PENSTOCK_int32) == 0);
  for (int r = 0; r < size; ++r) CHECK(got[r] == r);
  CHECK(penstock_reduce_scatter_block(comm, mine, got, 1, PENSTOCK_int32, PENSTOCK_sum) == 0 && got[0] == all);
  CHECK(penstock_reduce_scatter(comm, mine, got, counts, PENSTOCK_int32, PENSTOCK_max) == 0 && got[rank] == size - 1);
  CHECK(penstock_scan(comm, mine, got, 1, PENSTOCK_int32, PENSTOCK_sum) == 0 && got[0] == rank * (rank + 1) / 2);
  got[0] = -1;
  CHECK(penstock_exscan(comm, mine, got, 1, PENSTOCK_int32, PENSTOCK_sum) == 0);
  CHECK(got[0] == (rank == 0 ? -1 : rank * (rank - 1) / 2));

  penstock_persistent* again = NULL;
  penstock_request* request = NULL;
  CHECK(penstock_scan_init(comm, PENSTOCK_IN_PLACE, got, 1, PENSTOCK_int32, PENSTOCK_sum, &again) == 0);
  for (int turn = 0; turn < 3; ++turn) {
    got[0] = turn;
    CHECK(penstock_start(again, &request) == 0 && penstock_wait(&request) == 0);
    CHECK(got[0] == turn * (rank + 1));
  }
  penstock_persistent_free(again);
  CHECK(penstock_allgatherv(comm, mine, 1, got, NULL, NULL, PENSTOCK_int32) == PENSTOCK_invalid_argument);
  CHECK(strstr(penstock_last_error(), "counts are NULL") != NULL);
  free(counts);
  free(mine);
  free(got);
}

/* Each rank has a matrix of ints with one column per rank. It sends each column to one rank, which receives a row. */
static void datatypes(penstock_comm* comm) {
  enum { kRows = 5 };
  const int rank = penstock_comm_rank(comm);
  const int size = penstock_comm_size(comm);
  const size_t ranks = (size_t)size;
  int32_t* matrix = calloc(kRows * ranks, sizeof *matrix);
  int32_t* rows = calloc(kRows * ranks, sizeof *rows);
  CHECK(matrix != NULL && rows != NULL);
  for (int i = 0; i < kRows * size; ++i) matrix[i] = 1000 * rank + i;
  MPI_Datatype vector;
  MPI_Datatype column;
  MPI_Type_vector(kRows, 1, size, MPI_INT32_T, &vector);
  MPI_Type_create_resized(vector, 0, sizeof *matrix, &column);
  penstock_datatype* column_type = NULL;
  penstock_datatype* element_type = NULL;
  CHECK(penstock_datatype_create(column, &column_type) == 0);
  CHECK(penstock_datatype_create(MPI_INT32_T, &element_type) == 0);
  MPI_Type_free(&vector);
  MPI_Type_free(&column);

  const penstock_items sent = {.buffer = matrix, .count = 1, .datatype = column_type};
  const penstock_items received = {.buffer = rows, .count = kRows, .datatype = element_type};
  penstock_persistent* again = NULL;
  penstock_request* request = NULL;
  CHECK(penstock_collective_items_init(comm, PENSTOCK_alltoall, &sent, &received, 0, &again) == 0);
  for (int form = 0; form < 3; ++form) {
    memset(rows, 0, kRows * ranks * sizeof *rows);
    if (form == 0) CHECK(penstock_collective_items(comm, PENSTOCK_alltoall, &sent, &received, 0) == 0);
    if (form == 1) CHECK(penstock_icollective_items(comm, PENSTOCK_alltoall, &sent, &received, 0, &request) == 0);
    if (form == 2) CHECK(penstock_start(again, &request) == 0);
    CHECK(penstock_wait(&request) == 0);
    for (int r = 0; r < size; ++r)
      for (int i = 0; i < kRows; ++i) CHECK(rows[r * kRows + i] == 1000 * r + i * size + rank);
  }
  penstock_persistent_free(again);
  /* All ranks receive the last column of the last rank in their first column. */
  const penstock_items place = {
      .buffer = rank == size - 1 ? matrix + size - 1 : matrix, .count = 1, .datatype = column_type};
  CHECK(penstock_collective_items(comm, PENSTOCK_bcast, NULL, &place, size - 1) == 0);
  for (int i = 0; i < kRows; ++i) CHECK(*((int32_t*)place.buffer + i * size) == 1000 * (size - 1) + (i + 1) * size - 1);
  const penstock_items own = {.buffer = PENSTOCK_IN_PLACE, .count = 0, .datatype = NULL};
  for (int i = 0; i < size; ++i) matrix[i] = i == rank ? 7 * rank : -1;
  const penstock_items all = {.buffer = matrix, .count = 1, .datatype = element_type};
  CHECK(penstock_collective_items(comm, PENSTOCK_allgather, &own, &all, 0) == 0);
  for (int i = 0; i < size; ++i) CHECK(matrix[i] == 7 * i);
  /* alltoallw: integer i of `rows` from rank i, integers for even ranks and their bytes for odd ones. */
  uint64_t counts[64], places[64];
  const penstock_datatype* types[64];
  CHECK(size <= 64);
  for (int i = 0; i < size; ++i) {
    matrix[i] = 100 * rank + i;
    counts[i] = i % 2 == 0 ? 1 : sizeof *matrix;
    places[i] = (uint64_t)i * sizeof *matrix;
    types[i] = i % 2 == 0 ? element_type : NULL;
  }
  const penstock_items many = {.buffer = matrix, .counts = counts, .displacements = places, .datatypes = types};
  const penstock_items into = {.buffer = rows, .counts = counts, .displacements = places, .datatypes = types};
  CHECK(penstock_collective_items(comm, PENSTOCK_alltoallw, &many, &into, 0) == 0);
  for (int i = 0; i < size; ++i) CHECK(rows[i] == 100 * i + rank);
  CHECK(penstock_collective_items(comm, PENSTOCK_no_collective, NULL, NULL, 0) == PENSTOCK_invalid_argument);
  CHECK(penstock_collective_items(comm, PENSTOCK_allreduce, &sent, &received, 0) == PENSTOCK_invalid_argument);
  penstock_datatype_free(column_type);
  penstock_datatype_free(element_type);
  free(matrix);
  free(rows);
}

/* Composition of x -> a*x + b modulo 2^32, which does not commute. */
typedef struct affine {
  uint32_t a;
  uint32_t b;
  uint32_t turns;
} affine;

static void compose(const void* from, void* to, uint64_t count, void* context) {
  const affine* left = from;
  affine* right = to;
  CHECK(*(const int*)context == 7);
  for (uint64_t i = 0; i < count; ++i) {
    right[i].b += left[i].b * right[i].a;
    right[i].a *= left[i].a;
    right[i].turns += left[i].turns;
  }
}

static affine of_rank(int rank, int i) {
  const affine own = {2 * (uint32_t)rank + 3, (uint32_t)(rank * 5 + i), 1};
  return own;
}

/* The sum of large and small values depends on the order. The ranks exchange their values. */
static void reproducible_operations(penstock_comm* comm) {
  const int rank = penstock_comm_rank(comm);
  const int size = penstock_comm_size(comm);
  penstock_op* op = NULL;
  CHECK(penstock_op_create_reproducible(PENSTOCK_float32, PENSTOCK_sum, &op) == 0);
  CHECK(penstock_op_create_reproducible(PENSTOCK_no_dtype, PENSTOCK_sum, &op) == PENSTOCK_invalid_argument);
  CHECK(penstock_op_create_reproducible(PENSTOCK_float32, PENSTOCK_no_reduce_op, &op) == PENSTOCK_invalid_argument);
  float sums[2][100];
  for (int turn = 0; turn < 2; ++turn) {
    const int role = turn == 0 ? rank : size - 1 - rank;
    float mine[100];
    for (int i = 0; i < 100; ++i) mine[i] = (float)(i + 1) * (role % 2 == 0 ? 1e-3f : 3e4f) / (float)(role + 3);
    CHECK(penstock_allreduce_by(comm, mine, sums[turn], 100, op) == 0);
    float part = 0;
    CHECK(penstock_allreduce_by(comm, mine + 41, &part, 1, op) == 0);
    CHECK(memcmp(&part, &sums[turn][41], sizeof part) == 0);
  }
  CHECK(memcmp(sums[0], sums[1], sizeof sums[0]) == 0);
  penstock_op_free(op);
}

static void user_operations(penstock_comm* comm) {
  const int rank = penstock_comm_rank(comm);
  const int size = penstock_comm_size(comm);
  int context = 7;
  penstock_op* op = NULL;
  CHECK(penstock_op_create(compose, &context, sizeof(affine), 0, &op) == 0);
  CHECK(penstock_op_create(NULL, NULL, 4, 0, &op) == PENSTOCK_invalid_argument);
  CHECK(penstock_op_create(compose, NULL, 0, 0, &op) == PENSTOCK_invalid_argument);
  for (int count = 1; count <= kCount * 8; count = count * 7 + 3) {
    affine* mine = calloc((size_t)count * 3, sizeof *mine);
    CHECK(mine != NULL);
    affine* got = mine + count;
    affine* expected = got + count;
    for (int i = 0; i < count; ++i) {
      mine[i] = of_rank(rank, i);
      expected[i] = of_rank(0, i);
      for (int r = 1; r < size; ++r) {
        affine next = of_rank(r, i);
        compose(&expected[i], &next, 1, &context);
        expected[i] = next;
      }
    }
    CHECK(penstock_allreduce_by(comm, mine, got, (uint64_t)count, op) == 0);
    CHECK(memcmp(got, expected, (size_t)count * sizeof *got) == 0);
    memset(got, 0, (size_t)count * sizeof *got);
    CHECK(penstock_reduce_by(comm, mine, got, (uint64_t)count, op, size - 1) == 0);
    if (rank == size - 1) CHECK(memcmp(got, expected, (size_t)count * sizeof *got) == 0);
    penstock_request* request = NULL;
    CHECK(penstock_iscan_by(comm, mine, got, (uint64_t)count, op, &request) == 0 && penstock_wait(&request) == 0);
    if (rank == size - 1) CHECK(memcmp(got, expected, (size_t)count * sizeof *got) == 0);
    free(mine);
  }
  penstock_op_free(op);
  CHECK(penstock_allreduce_by(comm, &context, &op, 1, NULL) == PENSTOCK_invalid_argument);

  struct {
    double value;
    int32_t place;
  } pair = {(double)((rank * 5) % size), rank}, least = {-1, -1};
  CHECK(penstock_allreduce(comm, &pair, &least, 1, PENSTOCK_float64_int32, PENSTOCK_minloc) == 0);
  CHECK(least.value == 0 && least.place == 0);
  const uint8_t is_last = rank == size - 1;
  uint8_t any = 0;
  CHECK(penstock_allreduce(comm, &is_last, &any, 1, PENSTOCK_bool8, PENSTOCK_lor) == 0 && any == 1);
  long double x = rank;
  long double sum = 0;
  CHECK(penstock_allreduce(comm, &x, &sum, 1, PENSTOCK_longdouble, PENSTOCK_sum) == 0);
  CHECK(sum == size * (size - 1) / 2);
  CHECK(penstock_allreduce(comm, &x, &sum, 1, PENSTOCK_longdouble, PENSTOCK_band) == PENSTOCK_invalid_argument);
}

static void mistakes(penstock_comm* comm) {
  double x[4] = {0, 0, 0, 0};
  /* What repeats a call is checked, too: here without a mistake, then with one of rank 0. */
  for (int turn = 0; turn < 3; ++turn)
    CHECK(penstock_allreduce(comm, x, x + 2, 2, PENSTOCK_float64, PENSTOCK_sum) == 0);
  CHECK(penstock_allreduce(comm, x, x + 2, 2, (penstock_dtype)(PENSTOCK_float64 + 256), PENSTOCK_sum) ==
        PENSTOCK_invalid_argument);
  const int status =
      penstock_allreduce(comm, penstock_comm_rank(comm) == 0 ? NULL : x, x + 2, 2, PENSTOCK_float64, PENSTOCK_sum);
  CHECK(status == (penstock_comm_rank(comm) == 0 ? PENSTOCK_invalid_argument : PENSTOCK_peer_failed));
  CHECK(strlen(penstock_last_error()) > 0);
  CHECK(penstock_bcast(NULL, x, 1, PENSTOCK_float64, 0) == PENSTOCK_invalid_argument);
  CHECK(strstr(penstock_last_error(), "comm is NULL") != NULL);
  CHECK(penstock_last_error_rank() == -1);
  CHECK(penstock_bcast(comm, x, 1, PENSTOCK_float64, 99) == PENSTOCK_invalid_argument);
  CHECK(penstock_bcast(comm, x, 1, (penstock_dtype)77, 0) == PENSTOCK_invalid_argument);
  CHECK(strcmp(penstock_status_name(PENSTOCK_peer_failed), "peer_failed") == 0);
  CHECK(strcmp(penstock_status_name(0), "success") == 0);
  CHECK(strcmp(penstock_status_name(12345), "unknown") == 0);
  penstock_comm* none = NULL;
  CHECK(penstock_comm_create(MPI_COMM_NULL, 0, &none) == PENSTOCK_invalid_argument && none == NULL);
  CHECK(penstock_barrier(comm) == 0);
}

/* Checks `status` and `request` of a start in which rank 0 passed a null request. */
static void check_fails_everywhere(const penstock_comm* comm, int status, penstock_request** request) {
  if (penstock_comm_rank(comm) == 0) {
    CHECK(status == PENSTOCK_invalid_argument && strstr(penstock_last_error(), "request is NULL") != NULL);
    return;
  }
  if (status == 0) status = penstock_wait(request);
  CHECK(status == PENSTOCK_peer_failed && penstock_last_error_rank() == 0);
  CHECK(strstr(penstock_last_error(), "request is NULL") != NULL);
}

/* One rank passes a null pointer. The others must not wait for it. */
static void places_that_are_null(penstock_comm* comm) {
  const int rank = penstock_comm_rank(comm);
  const int expected = rank == 0 ? PENSTOCK_invalid_argument : PENSTOCK_peer_failed;
  penstock_comm* made = NULL;
  penstock_comm** const place = rank == 0 ? NULL : &made;
  CHECK(penstock_comm_create(MPI_COMM_WORLD, 0, place) == expected && made == NULL);
  CHECK(strstr(penstock_last_error(), "comm is NULL") != NULL);
  CHECK(penstock_comm_duplicate(comm, place) == expected && made == NULL);
  CHECK(strstr(penstock_last_error(), "duplicate is NULL") != NULL);

  const int64_t shape[1] = {4};
  const int64_t block[1] = {4};
  const int64_t grid[1] = {1};
  penstock_layout* layout = NULL;
  CHECK(penstock_layout_block_cyclic(1, shape, block, grid, 0, 0, &layout) == 0);
  penstock_redistribution* plan = NULL;
  CHECK(penstock_redistribution_create(comm, layout, layout, PENSTOCK_float64, 'N', 0, rank == 0 ? NULL : &plan) ==
        expected);
  CHECK(plan == NULL && strstr(penstock_last_error(), "redistribution is NULL") != NULL);
  CHECK(penstock_redistribution_create(comm, rank == 0 ? NULL : layout, layout, PENSTOCK_float64, 'N', 0, &plan) ==
        expected);
  CHECK(penstock_redistribution_create(comm, layout, layout, PENSTOCK_float64, rank == 0 ? '?' : 'N', 0, &plan) ==
        expected);
  penstock_layout_free(layout);
  CHECK(penstock_barrier(comm) == 0);
}

/* One rank passes a null pointer. The others must not wait for it. */
static void requests_that_are_null(penstock_comm* comm) {
  double x[2] = {0, 0};
  double y[2] = {0, 0};
  penstock_request* request = NULL;
  penstock_request** const given = penstock_comm_rank(comm) == 0 ? NULL : &request;
  check_fails_everywhere(comm, penstock_iallreduce(comm, x, y, 2, PENSTOCK_float64, PENSTOCK_sum, given), &request);

  penstock_persistent* persistent = NULL;
  CHECK(penstock_allreduce_init(comm, x, y, 2, PENSTOCK_float64, PENSTOCK_sum, &persistent) == 0);
  check_fails_everywhere(comm, penstock_start(persistent, given), &request);
  CHECK(penstock_start(persistent, &request) == 0 && penstock_wait(&request) == 0);
  penstock_persistent_free(persistent);

  penstock_datatype* number = NULL;
  CHECK(penstock_datatype_create(MPI_DOUBLE, &number) == 0);
  double* all = calloc((size_t)penstock_comm_size(comm), sizeof *all);
  const penstock_items send = {.buffer = x, .count = 1, .datatype = number};
  const penstock_items receive = {.buffer = all, .count = 1, .datatype = number};
  check_fails_everywhere(comm, penstock_icollective_items(comm, PENSTOCK_allgather, &send, &receive, 0, given),
                         &request);
  CHECK(penstock_collective_items(comm, PENSTOCK_allgather, &send, &receive, 0) == 0);
  penstock_datatype_free(number);
  free(all);

  const int64_t shape[] = {2 * penstock_comm_size(comm)};
  const int64_t block[] = {1};
  const int64_t grid[] = {penstock_comm_size(comm)};
  const int64_t wide[] = {2};
  penstock_layout* source = NULL;
  penstock_layout* target = NULL;
  penstock_redistribution* move = NULL;
  CHECK(penstock_layout_block_cyclic(1, shape, block, grid, 0, 0, &source) == 0);
  CHECK(penstock_layout_block_cyclic(1, shape, wide, grid, 0, 0, &target) == 0);
  CHECK(penstock_redistribution_create(comm, source, target, PENSTOCK_float64, 'N', 0, &move) == 0);
  check_fails_everywhere(comm, penstock_iredistribute(move, x, y, 1, 0, given), &request);
  check_fails_everywhere(comm, penstock_iredistribute_in(move, x, y, 1, 0, NULL, 0, given), &request);
  void* from[] = {x};
  void* to[] = {y};
  const int64_t stride[] = {1};
  const penstock_parts input = {1, from, stride};
  const penstock_parts output = {1, to, stride};
  check_fails_everywhere(comm, penstock_iredistribute_parts(move, &input, &output, 1, 0, NULL, 0, given), &request);
  check_fails_everywhere(
      comm,
      penstock_iredistribute_once(comm, source, PENSTOCK_float64, x, target, PENSTOCK_float64, y, 'N', 1, 0, given),
      &request);
  CHECK(penstock_redistribute(move, x, y, 1, 0) == 0);
  penstock_redistribution_free(move);
  penstock_layout_free(source);
  penstock_layout_free(target);
}

/* Each rank chooses independently whether it works in place. */
static void scans_in_place_on_some_ranks(penstock_comm* comm) {
  const int rank = penstock_comm_rank(comm);
  const uint64_t counts[] = {1, kCount, 300000};
  int32_t* mine = malloc(300000 * sizeof *mine);
  int32_t* got = malloc(300000 * sizeof *got);
  CHECK(mine != NULL && got != NULL);
  for (size_t c = 0; c < sizeof counts / sizeof *counts; ++c) {
    const uint64_t last = counts[c] - 1;
    for (uint64_t i = 0; i < counts[c]; ++i) mine[i] = got[i] = rank + (int32_t)i;
    const void* send = rank % 2 == 0 ? mine : PENSTOCK_IN_PLACE;
    CHECK(penstock_scan(comm, send, got, counts[c], PENSTOCK_int32, PENSTOCK_sum) == 0);
    CHECK(got[last] == rank * (rank + 1) / 2 + (rank + 1) * (int32_t)last);
    for (uint64_t i = 0; i < counts[c]; ++i) got[i] = mine[i];
    CHECK(penstock_exscan(comm, send, got, counts[c], PENSTOCK_int32, PENSTOCK_sum) == 0);
    if (rank > 0) CHECK(got[last] == rank * (rank - 1) / 2 + rank * (int32_t)last);
    if (rank == 0) CHECK(got[last] == (int32_t)last);
  }
  free(mine);
  free(got);
}

static void report(const penstock_comm* comm) {
  size_t length = 0;
  CHECK(penstock_comm_report(comm, NULL, 0, &length) == 0 && length > 20);
  char* text = malloc(length + 1);
  CHECK(penstock_comm_report(comm, text, length + 1, NULL) == 0);
  CHECK(strlen(text) == length && strstr(text, "ABI") != NULL);
  CHECK(penstock_comm_report(comm, text, 5, &length) == 0 && strlen(text) == 4);
  free(text);
}

static void store(void) {
  penstock_store* stores = NULL;
  penstock_blob* blob = NULL;
  char url[64];
  snprintf(url, sizeof url, "memory:c_api_%d", (int)getpid());
  CHECK(penstock_store_open("nonsense:", &stores) != 0 && stores == NULL);
  CHECK(penstock_store_open(url, &stores) == 0);
  CHECK(penstock_blob_create(stores, "field", 100, &blob) == 0);
  char hello[] = "hello";
  char world[] = "world";
  const penstock_region pieces[] = {{10, hello, 5}, {20, world, 5}};
  uint64_t version = 0;
  CHECK(penstock_blob_write_if(blob, 0, pieces, 2, &version) == 0 && version == 1);
  CHECK(penstock_blob_write_if(blob, 0, pieces, 2, &version) == PENSTOCK_exists && version == 1);
  CHECK(penstock_blob_write(blob, pieces, 2, &version) == 0 && version == 2);
  char read[15] = "";
  const penstock_region piece = {10, read, 15};
  CHECK(penstock_blob_read(blob, &piece, 1, PENSTOCK_LATEST) == 0);
  CHECK(memcmp(read, "hello\0\0\0\0\0world", 15) == 0);
  uint64_t value = 0;
  CHECK(penstock_blob_latest(blob, &value) == 0 && value == 2);
  CHECK(penstock_blob_size(blob, &value) == 0 && value == 100);
  int exists = -1;
  CHECK(penstock_blob_wait(blob, 2, 10, &exists) == 0 && exists == 1);
  CHECK(penstock_blob_wait(blob, 3, 0.01, &exists) == 0 && exists == 0);
  const penstock_region outside = {99, read, 15};
  CHECK(penstock_blob_read(blob, &outside, 1, PENSTOCK_LATEST) == PENSTOCK_invalid_argument);
  penstock_blob_free(blob);
  CHECK(penstock_blob_open(stores, "other", &blob) == PENSTOCK_not_found);
  penstock_store_free(stores);
}

static void redistribution(penstock_comm* comm) {
  const int rank = penstock_comm_rank(comm);
  const int size = penstock_comm_size(comm);
  const int64_t shape[] = {40, 24};
  const int64_t block[] = {4, 3};
  const int64_t rows[] = {size, 1};
  const int64_t columns[] = {1, size};
  penstock_layout* source = NULL;
  penstock_layout* target = NULL;
  const int64_t turned[] = {24, 40};
  CHECK(penstock_layout_block_cyclic(2, shape, block, rows, 0, 0, &source) == 0);
  CHECK(penstock_layout_block_cyclic(2, turned, block, columns, 0, 0, &target) == 0);
  int64_t held = 0;
  int64_t total = 0;
  for (int r = 0; r < size; ++r) {
    CHECK(penstock_layout_local_size(source, r, &held) == 0);
    total += held;
  }
  CHECK(total == 40 * 24);

  penstock_redistribution* move = NULL;
  penstock_redistribution* back = NULL;
  CHECK(penstock_redistribution_create(comm, source, target, PENSTOCK_float64, 'T', 0, &move) == 0);
  CHECK(penstock_redistribution_create(comm, target, source, PENSTOCK_float64, 'T', 0, &back) == 0);
  int64_t input = 0;
  int64_t output = 0;
  CHECK(penstock_redistribution_info(move, NULL, NULL, &input, &output) == 0);
  double* a = malloc((size_t)(input + 1) * sizeof *a);
  double* b = calloc((size_t)(output + 1), sizeof *b);
  double* c = calloc((size_t)(input + 1), sizeof *c);
  for (int64_t i = 0; i < input; ++i) a[i] = rank * 1000.0 + (double)i;
  CHECK(penstock_redistribute(move, a, b, 2.0, 0.0) == 0);
  penstock_request* request = NULL;
  CHECK(penstock_iredistribute(back, b, c, 0.5, 0.0, &request) == 0);
  CHECK(penstock_wait(&request) == 0);
  for (int64_t i = 0; i < input; ++i) CHECK(c[i] == a[i]);
  penstock_redistribution* wrong = NULL;
  CHECK(penstock_redistribution_create(comm, source, target, PENSTOCK_float64, 'N', 0, &wrong) != 0 && wrong == NULL);
  CHECK(penstock_redistribution_create(comm, source, target, PENSTOCK_float64, 'X', 0, &wrong) != 0 && wrong == NULL);
  penstock_redistribution* narrow = NULL;
  float* small = calloc((size_t)(output + 1), sizeof *small);
  CHECK(penstock_redistribution_create_converting(comm, source, PENSTOCK_float64, target, PENSTOCK_float32, 'T', 0,
                                                  &narrow) == 0);
  CHECK(penstock_redistribute(narrow, a, small, 2.0, 0.0) == 0);
  for (int64_t i = 0; i < output; ++i) CHECK(small[i] == (float)b[i]);
  int64_t narrow_output = 0;
  CHECK(penstock_redistribution_info(narrow, NULL, NULL, &input, &narrow_output) == 0);
  CHECK(narrow_output == output);
  CHECK(penstock_redistribution_create_converting(comm, source, PENSTOCK_float64, target, PENSTOCK_int32, 'T', 0,
                                                  &wrong) != 0 &&
        wrong == NULL);
  penstock_redistribution_free(narrow);
  free(small);

  uint64_t workspace_bytes = 1;
  CHECK(penstock_redistribution_workspace(move, &workspace_bytes) == 0);
  void* workspace = malloc((size_t)workspace_bytes + 1);
  double* d = calloc((size_t)(output + 1), sizeof *d);
  CHECK(penstock_iredistribute_in(move, a, d, 2.0, 0.0, workspace, workspace_bytes, &request) == 0);
  CHECK(penstock_wait(&request) == 0);
  for (int64_t i = 0; i < output; ++i) CHECK(d[i] == b[i]);
  CHECK(penstock_iredistribute_in(move, a, d, 2.0, 0.0, d, (uint64_t)output * sizeof *d + 8, &request) ==
        (output > 0 ? PENSTOCK_invalid_argument : 0));
  for (int turn = 0; turn < 3; ++turn) {
    for (int64_t i = 0; i < output; ++i) d[i] = -1;
    CHECK(penstock_iredistribute_once(comm, source, PENSTOCK_float64, a, target, PENSTOCK_float64, d, 'T', 2.0, 0.0,
                                      &request) == 0);
    CHECK(penstock_wait(&request) == 0);
    for (int64_t i = 0; i < output; ++i) CHECK(d[i] == b[i]);
  }
  CHECK(penstock_iredistribute_once(comm, source, PENSTOCK_float64, a, target, PENSTOCK_float64, d, 'X', 2.0, 0.0,
                                    &request) == PENSTOCK_invalid_argument);

  /* The target has every second element of longer rows. The source is dense. */
  int64_t parts = 0;
  int64_t input_shape[2] = {0, 0};
  int64_t output_shape[2] = {0, 0};
  CHECK(penstock_layout_local_parts(source, rank, &parts, input_shape, 1) == 0 && parts == 1);
  CHECK(penstock_layout_local_parts(target, rank, &parts, output_shape, 1) == 0 && parts == 1);
  CHECK(output_shape[0] * output_shape[1] == output);
  double* wide = calloc((size_t)(2 * output + 1), sizeof *wide);
  void* from[] = {a};
  void* to[] = {wide};
  const int64_t from_strides[] = {input_shape[1], 1};
  const int64_t to_strides[] = {2 * output_shape[1], 2};
  const penstock_parts of_input = {1, from, from_strides};
  const penstock_parts of_output = {1, to, to_strides};
  CHECK(penstock_iredistribute_parts(move, &of_input, &of_output, 2.0, 0.0, NULL, 0, &request) == 0);
  CHECK(penstock_wait(&request) == 0);
  for (int64_t i = 0; i < output; ++i) CHECK(wide[2 * i] == b[i] && wide[2 * i + 1] == 0);
  CHECK(penstock_iredistribute_parts(move, NULL, &of_output, 2.0, 0.0, NULL, 0, &request) == PENSTOCK_invalid_argument);
  free(wide);
  free(workspace);
  free(d);
  free(a);
  free(b);
  free(c);
  penstock_redistribution_free(move);
  penstock_redistribution_free(back);
  penstock_layout_free(source);
  penstock_layout_free(target);
}

/* A ring of all ranks. */
static void neighbors(penstock_comm* world) {
  const int rank = penstock_comm_rank(world);
  const int size = penstock_comm_size(world);
  const int periodic = 1;
  MPI_Comm line;
  MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 0, &line);
  penstock_comm* comm = NULL;
  CHECK(penstock_comm_create(line, 0, &comm) == 0);
  MPI_Comm_free(&line);
  size_t sources = 0, destinations = 0;
  CHECK(penstock_comm_degrees(comm, &sources, &destinations) == 0 && sources == 2 && destinations == 2);
  CHECK(penstock_comm_degrees(world, &sources, &destinations) == PENSTOCK_invalid_argument);
  const int32_t below = (rank + size - 1) % size, above = (rank + 1) % size;
  const int32_t mine[] = {10 * rank, 10 * rank + 1};
  int32_t got[3] = {-1, -1, -1};
  penstock_request* request = NULL;
  penstock_persistent* again = NULL;
  CHECK(penstock_neighbor_alltoall_init(comm, mine, got, 1, PENSTOCK_int32, &again) == 0);
  for (int form = 0; form < 3; ++form) {
    memset(got, -1, sizeof got);
    if (form == 0) CHECK(penstock_neighbor_alltoall(comm, mine, got, 1, PENSTOCK_int32) == 0);
    if (form == 1) CHECK(penstock_ineighbor_alltoall(comm, mine, got, 1, PENSTOCK_int32, &request) == 0);
    if (form == 2) CHECK(penstock_start(again, &request) == 0);
    CHECK(penstock_wait(&request) == 0);
    CHECK(got[0] == 10 * below + 1 && got[1] == 10 * above && got[2] == -1);
  }
  penstock_persistent_free(again);
  CHECK(penstock_neighbor_allgather(comm, mine, got, 1, PENSTOCK_int32) == 0);
  CHECK(got[0] == 10 * below && got[1] == 10 * above);
  const uint64_t counts[] = {1, 1}, places[] = {2, 0}, none[] = {0, 1};
  CHECK(penstock_neighbor_allgatherv(comm, mine, 1, got, counts, places, PENSTOCK_int32) == 0);
  CHECK(got[2] == 10 * below && got[0] == 10 * above);
  /* Nothing goes down, so nothing comes from above. */
  const uint64_t half[] = {1, 0};
  memset(got, -1, sizeof got);
  CHECK(penstock_neighbor_alltoallv(comm, mine, none, NULL, got, half, NULL, PENSTOCK_int32) == 0);
  CHECK(got[0] == 10 * below && got[1] == -1);
  penstock_datatype* element = NULL;
  CHECK(penstock_datatype_create(MPI_INT32_T, &element) == 0);
  const penstock_datatype* types[] = {element, NULL};
  const uint64_t lengths[] = {1, sizeof *mine}, back[] = {sizeof *mine, 0};
  const penstock_items sent = {.buffer = (void*)mine, .counts = lengths, .displacements = back, .datatypes = types};
  const penstock_items received = {.buffer = got, .counts = lengths, .displacements = back, .datatypes = types};
  CHECK(penstock_collective_items(comm, PENSTOCK_neighbor_alltoallw, &sent, &received, 0) == 0);
  CHECK(got[1] == 10 * below && got[0] == 10 * above + 1);
  CHECK(penstock_neighbor_allgather(world, mine, got, 1, PENSTOCK_int32) == PENSTOCK_invalid_argument);
  penstock_datatype_free(element);
  penstock_comm_free(comm);
}

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  alarm(1500);
  penstock_comm* comm = NULL;
  CHECK(penstock_comm_create(MPI_COMM_WORLD, -1, &comm) == 0);
  collectives(comm);
  algorithms_by_name(comm);
  blocks(comm);
  datatypes(comm);
  neighbors(comm);
  user_operations(comm);
  reproducible_operations(comm);
  mistakes(comm);
  places_that_are_null(comm);
  requests_that_are_null(comm);
  scans_in_place_on_some_ranks(comm);
  report(comm);
  store();
  redistribution(comm);
  penstock_comm* twin = NULL;
  CHECK(penstock_comm_duplicate(comm, &twin) == 0);
  collectives(twin);
  blocks(twin);
  penstock_comm_free(twin);
  penstock_comm_free(comm);
  penstock_comm_free(NULL);
  MPI_Finalize();
  return 0;
}
