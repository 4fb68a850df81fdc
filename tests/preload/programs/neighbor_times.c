/* What collectives among neighbours take: by MPI (its profiling interface) and as intercepted, in turns. The ranks form
 * a periodic grid of two dimensions. Before each call a rank writes what it sends, and there is a barrier, MPI's, which
 * is not timed. Argument: the number of rounds. Prints a line of JSON for each operation and length: medians over the
 * rounds of the greatest time of all ranks. */
#include <string.h>

#include "check.h"
#include "median.h"

enum { NEIGHBORS = 4, MOST_ROUNDS = 1000, MOST_BYTES = 1 << 20, CALLS = 50 };

typedef void (*timed_call)(int bytes);

static MPI_Comm grid;
static char from[NEIGHBORS * MOST_BYTES], to[NEIGHBORS * MOST_BYTES], expected[NEIGHBORS * MOST_BYTES];
static int counts[NEIGHBORS], displacements[NEIGHBORS];

#define BY(prefix)                                                                                                 \
  static void prefix##_allgather(int bytes) {                                                                      \
    prefix##_Neighbor_allgather(from, bytes, MPI_BYTE, to, bytes, MPI_BYTE, grid);                                 \
  }                                                                                                                \
  static void prefix##_alltoall(int bytes) {                                                                       \
    prefix##_Neighbor_alltoall(from, bytes, MPI_BYTE, to, bytes, MPI_BYTE, grid);                                  \
  }                                                                                                                \
  static void prefix##_alltoallv(int bytes) {                                                                      \
    (void)bytes;                                                                                                   \
    prefix##_Neighbor_alltoallv(from, counts, displacements, MPI_BYTE, to, counts, displacements, MPI_BYTE, grid); \
  }                                                                                                                \
  static void prefix##_ialltoall(int bytes) {                                                                      \
    MPI_Request request;                                                                                           \
    prefix##_Ineighbor_alltoall(from, bytes, MPI_BYTE, to, bytes, MPI_BYTE, grid, &request);                       \
    MPI_Wait(&request, MPI_STATUS_IGNORE);                                                                         \
  }
BY(MPI)
BY(PMPI)

static double measure(timed_call call, int bytes, size_t sent_bytes, int calls) {
  double inside = 0;
  for (int i = 0; i < calls; ++i) {
    memset(from, rank + i, sent_bytes);
    PMPI_Barrier(MPI_COMM_WORLD);
    const double before = MPI_Wtime();
    call(bytes);
    inside += MPI_Wtime() - before;
  }
  inside /= calls;
  PMPI_Allreduce(MPI_IN_PLACE, &inside, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return inside;
}

/* `reference` is one that blocks: Open MPI's non-blocking ones exchange the blocks of two neighbours that are one rank.
 */
static void check(timed_call intercepted, timed_call reference, int bytes) {
  const size_t all_bytes = (size_t)bytes * NEIGHBORS;
  for (size_t i = 0; i < all_bytes; ++i) from[i] = (char)(i / (size_t)bytes * 50 + i * 7 + (size_t)rank);
  memset(to, -1, all_bytes);
  reference(bytes);
  memcpy(expected, to, all_bytes);
  memset(to, -1, all_bytes);
  intercepted(bytes);
  CHECK(memcmp(to, expected, all_bytes) == 0);
}

static void compare(const char* name, timed_call intercepted, timed_call native, int bytes, int rounds) {
  static double with[MOST_ROUNDS], without[MOST_ROUNDS];
  for (int i = 0; i < NEIGHBORS; ++i) {
    counts[i] = bytes;
    displacements[i] = i * bytes;
  }
  /* A communicator for each length, since all lengths share one choice. */
  int sizes[2] = {0, 0}, periods[2] = {1, 1};
  MPI_Dims_create(ranks, 2, sizes);
  MPI_Cart_create(MPI_COMM_WORLD, 2, sizes, periods, 0, &grid);
  for (int i = 0; i < 200; ++i) MPI_Barrier(grid); /* prepares it, which calls among neighbours do not */
  check(intercepted, native == PMPI_ialltoall ? PMPI_alltoall : native, bytes);
  const size_t sent_bytes = (size_t)bytes * (intercepted == MPI_allgather ? 1 : NEIGHBORS);
  const int calls = bytes > 65536 ? CALLS / 10 : CALLS;
  for (int i = 0; i < rounds; ++i)
    for (int turn = 0; turn < 2; ++turn) {
      const int is_native = (i + turn) % 2;
      (is_native ? without : with)[i] = measure(is_native ? native : intercepted, bytes, sent_bytes, calls);
    }
  check(intercepted, native == PMPI_ialltoall ? PMPI_alltoall : native, bytes);
  MPI_Comm_free(&grid);
  const double intercepted_s = median(with, rounds), native_s = median(without, rounds);
  if (rank == 0)
    printf(
        "{\"what\": \"%s\", \"bytes\": %d, \"ranks\": %d, \"intercepted_us\": %.3f, \"native_us\": %.3f, "
        "\"ratio\": %.3f}\n",
        name, bytes, ranks, intercepted_s * 1e6, native_s * 1e6, native_s / intercepted_s);
}

int main(int argc, char** argv) {
  static const int lengths[] = {8, 128, 1024, 8192, 65536, MOST_BYTES};
  begin(&argc, &argv);
  const int given = argc > 1 ? atoi(argv[1]) : 100;
  const int rounds = given < 1 ? 1 : given > MOST_ROUNDS ? MOST_ROUNDS : given;
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; ++i) {
    compare("neighbor_allgather", MPI_allgather, PMPI_allgather, lengths[i], rounds);
    compare("neighbor_alltoall", MPI_alltoall, PMPI_alltoall, lengths[i], rounds);
    compare("neighbor_alltoallv", MPI_alltoallv, PMPI_alltoallv, lengths[i], rounds);
    compare("ineighbor_alltoall", MPI_ialltoall, PMPI_ialltoall, lengths[i], rounds);
  }
  MPI_Finalize();
  return 0;
}
