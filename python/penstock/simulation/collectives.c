// collectives OPERATION ROOT COMBINE_PS CACHE_BYTES UNCACHED_FACTOR BYTES…: times collectives under SimGrid's SMPI.
// Prints a line "bytes seconds" for each length: the time from a common start to the end of the last rank. Combining
// two elements costs COMBINE_PS picoseconds per byte, by UNCACHED_FACTOR more beyond CACHE_BYTES, as in Penstock's
// model: SMPI charges nothing.
#include <smpi/smpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const double kApart = 100;  // simulated seconds between two starts: longer than any collective

static const size_t kWarmUpBytes =
    16 << 10;  // shorter ones run once before: what SMPI sets up on first use is no part of them

static double combine_seconds_per_byte;
static double cache_bytes;
static double uncached_factor;

static void sleep_for(double seconds) {
  const struct timespec span = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9 + 0.5)};
  if (seconds > 0) nanosleep(&span, NULL);
}

static void combine(void* in, void* inout, int* count, MPI_Datatype* datatype) {
  (void)in;
  (void)inout;
  (void)datatype;
  const double bytes = (double)*count * sizeof(float);
  sleep_for(bytes * combine_seconds_per_byte * (bytes > cache_bytes ? uncached_factor : 1));
}

static int run(const char* operation, void* from, void* to, int bytes, int root, MPI_Op op) {
  const int floats = bytes / (int)sizeof(float);
  if (!strcmp(operation, "bcast")) return MPI_Bcast(to, bytes, MPI_BYTE, root, MPI_COMM_WORLD);
  if (!strcmp(operation, "reduce")) return MPI_Reduce(from, to, floats, MPI_FLOAT, op, root, MPI_COMM_WORLD);
  if (!strcmp(operation, "allreduce")) return MPI_Allreduce(from, to, floats, MPI_FLOAT, op, MPI_COMM_WORLD);
  if (!strcmp(operation, "gather")) return MPI_Gather(from, bytes, MPI_BYTE, to, bytes, MPI_BYTE, root, MPI_COMM_WORLD);
  if (!strcmp(operation, "scatter"))
    return MPI_Scatter(from, bytes, MPI_BYTE, to, bytes, MPI_BYTE, root, MPI_COMM_WORLD);
  if (!strcmp(operation, "allgather")) return MPI_Allgather(from, bytes, MPI_BYTE, to, bytes, MPI_BYTE, MPI_COMM_WORLD);
  if (!strcmp(operation, "alltoall")) return MPI_Alltoall(from, bytes, MPI_BYTE, to, bytes, MPI_BYTE, MPI_COMM_WORLD);
  if (!strcmp(operation, "barrier")) return MPI_Barrier(MPI_COMM_WORLD);
  return MPI_ERR_OTHER;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  combine_seconds_per_byte = atof(argv[3]) * 1e-12;
  cache_bytes = atof(argv[4]);
  uncached_factor = atof(argv[5]);
  MPI_Op op;
  MPI_Op_create(combine, 1, &op);
  const int exchanges = !strcmp(argv[1], "alltoall");
  const int sends_blocks = exchanges || !strcmp(argv[1], "scatter");
  const int receives_blocks = exchanges || !strcmp(argv[1], "gather") || !strcmp(argv[1], "allgather");
  double begin = 0;
  for (int at = 6; at < argc; ++at) {
    const size_t bytes = strtoull(argv[at], NULL, 10);
    // All ranks have the same memory: only the time matters.
    void* from = SMPI_SHARED_MALLOC(bytes * (size_t)(sends_blocks ? size : 1) + 1);
    void* to = SMPI_SHARED_MALLOC(bytes * (size_t)(receives_blocks ? size : 1) + 1);
    for (int is_warm = bytes >= kWarmUpBytes; is_warm < 2; ++is_warm) {
      begin += kApart;
      sleep_for(begin - MPI_Wtime());
      if (run(argv[1], from, to, (int)bytes, atoi(argv[2]), op) != MPI_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 1);
    }
    double took = MPI_Wtime() - begin, most = 0;
    MPI_Reduce(&took, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
      printf("%s %.9g\n", argv[at], most);
      fflush(stdout);
    }
    SMPI_SHARED_FREE(from);
    SMPI_SHARED_FREE(to);
  }
  MPI_Op_free(&op);
  MPI_Finalize();
  return 0;
}
