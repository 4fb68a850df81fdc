/* What a call takes after a barrier, as the Intel MPI Benchmarks measure it, and what both take together: by MPI (its
 * profiling interface) or as intercepted, in turns. Two or more ranks. Argument: the number of rounds. Prints a line of
 * JSON for each operation, length and pair of servers: medians over the rounds of the greatest time of all ranks. */
#include "check.h"
#include "median.h"

enum { CALLS = 200, PAIRS = 4, MOST_ROUNDS = 1000, MOST_BYTES = 4096, MOST_RANKS = 64 };

typedef void (*timed_call)(int bytes);

static char from[MOST_RANKS * MOST_BYTES], to[MOST_RANKS * MOST_BYTES];
static int counts[MOST_RANKS], displacements[MOST_RANKS];

static void set_counts(int bytes) {
  for (int i = 0; i < ranks; ++i) {
    counts[i] = bytes;
    displacements[i] = i * bytes;
  }
}

#define BY(prefix)                                                                                               \
  static void prefix##_bcast(int bytes) { prefix##_Bcast(to, bytes, MPI_BYTE, 0, MPI_COMM_WORLD); }              \
  static void prefix##_scatter(int bytes) {                                                                      \
    prefix##_Scatter(from, bytes, MPI_BYTE, to, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);                             \
  }                                                                                                              \
  static void prefix##_allreduce(int bytes) {                                                                    \
    prefix##_Allreduce(from, to, bytes / 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);                                   \
  }                                                                                                              \
  static void prefix##_iscatterv(int bytes) {                                                                    \
    MPI_Request request;                                                                                         \
    prefix##_Iscatterv(from, counts, displacements, MPI_BYTE, to, bytes, MPI_BYTE, 0, MPI_COMM_WORLD, &request); \
    MPI_Wait(&request, MPI_STATUS_IGNORE);                                                                       \
  }                                                                                                              \
  static void prefix##_igatherv(int bytes) {                                                                     \
    MPI_Request request;                                                                                         \
    prefix##_Igatherv(from, bytes, MPI_BYTE, to, counts, displacements, MPI_BYTE, 0, MPI_COMM_WORLD, &request);  \
    MPI_Wait(&request, MPI_STATUS_IGNORE);                                                                       \
  }
BY(MPI)
BY(PMPI)

/* {seconds inside the call, seconds of both} */
static void measure(int barrier_is_mpis, timed_call call, int bytes, double* seconds) {
  double inside = 0;
  PMPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  for (int i = 0; i < CALLS; ++i) {
    if (barrier_is_mpis)
      PMPI_Barrier(MPI_COMM_WORLD);
    else
      MPI_Barrier(MPI_COMM_WORLD);
    const double before = MPI_Wtime();
    call(bytes);
    inside += MPI_Wtime() - before;
  }
  seconds[0] = inside / CALLS;
  seconds[1] = (MPI_Wtime() - begin) / CALLS;
  PMPI_Allreduce(MPI_IN_PLACE, seconds, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

static void compare(const char* name, timed_call intercepted, timed_call native, int bytes, int rounds) {
  static double inside[PAIRS][MOST_ROUNDS], both[PAIRS][MOST_ROUNDS];
  set_counts(bytes);
  for (int round = 0; round < rounds; ++round)
    for (int i = 0; i < PAIRS; ++i) {
      const int pair = (round + i) % PAIRS;
      double seconds[2];
      measure(pair / 2, pair % 2 ? native : intercepted, bytes, seconds);
      inside[pair][round] = seconds[0];
      both[pair][round] = seconds[1];
    }
  for (int pair = PAIRS - 1; rank == 0 && pair >= 0; --pair)
    printf(
        "{\"what\": \"%s\", \"bytes\": %d, \"ranks\": %d, \"barrier\": \"%s\", \"call\": \"%s\", "
        "\"call_us\": %.3f, \"both_us\": %.3f}\n",
        name, bytes, ranks, pair / 2 ? "MPI" : "intercepted", pair % 2 ? "MPI" : "intercepted",
        median(inside[pair], rounds) * 1e6, median(both[pair], rounds) * 1e6);
}

int main(int argc, char** argv) {
  static const int lengths[] = {8, 512, 4096};
  begin(&argc, &argv);
  CHECK(ranks <= MOST_RANKS);
  const int given = argc > 1 ? atoi(argv[1]) : 50;
  const int rounds = given < 1 ? 1 : given > MOST_ROUNDS ? MOST_ROUNDS : given;
  for (int i = 0; i < 20; ++i) MPI_Barrier(MPI_COMM_WORLD); /* prepares the communicator */
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; ++i) {
    compare("bcast", MPI_bcast, PMPI_bcast, lengths[i], rounds);
    compare("scatter", MPI_scatter, PMPI_scatter, lengths[i], rounds);
    compare("allreduce", MPI_allreduce, PMPI_allreduce, lengths[i], rounds);
    compare("iscatterv", MPI_iscatterv, PMPI_iscatterv, lengths[i], rounds);
    compare("igatherv", MPI_igatherv, PMPI_igatherv, lengths[i], rounds);
  }
  MPI_Finalize();
  return 0;
}
