/* What interception costs: calls that Penstock serves against calls of Penstock's own interface, calls that MPI serves
 * and requests of both kinds against MPI's profiling interface, in turns. Two or more ranks. Argument: the number of
 * rounds. Prints a line of JSON for each comparison: times of rank 0 per call, medians over the rounds;
 * "least_difference_ns" is that of the shortest times, which other programs on the machine disturb least. */
#include <dlfcn.h>

#include "check.h"
#include "median.h"
#include "penstock/penstock_mpi.h"

typedef int (*create_function)(MPI_Comm, int, penstock_comm**);
typedef int (*allreduce_function)(penstock_comm*, const void*, void*, uint64_t, penstock_dtype, penstock_reduce_op);
typedef void (*free_function)(penstock_comm*);

enum { CALLS = 100, PAIRS = 16, REQUESTS = 4 * PAIRS, MOST_ROUNDS = 100000 };

static penstock_comm* direct;
static allreduce_function direct_allreduce;
static MPI_Op own_sum;
static double number = 1, total;
static double incoming[REQUESTS], outgoing[REQUESTS], sums[REQUESTS];
static MPI_Request requests[REQUESTS];

static void add(void* from, void* to, int* count, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *count; ++i) ((double*)to)[i] += ((double*)from)[i];
}

static void served(void) { MPI_Allreduce(&number, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); }
static void served_directly(void) { direct_allreduce(direct, &number, &total, 1, PENSTOCK_float64, PENSTOCK_sum); }
static void alone(void) { MPI_Allreduce(&number, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_SELF); }
static void alone_directly(void) { PMPI_Allreduce(&number, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_SELF); }
static void by_own_sum(void) { MPI_Allreduce(&number, &total, 1, MPI_DOUBLE, own_sum, MPI_COMM_WORLD); }
static void by_own_sum_directly(void) { PMPI_Allreduce(&number, &total, 1, MPI_DOUBLE, own_sum, MPI_COMM_WORLD); }

#define EXCHANGE(function, iallreduce, ibcast)                                                          \
  static void function(void) {                                                                          \
    const int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;                            \
    for (int i = 0; i < PAIRS; ++i) {                                                                   \
      MPI_Irecv(&incoming[i], 1, MPI_DOUBLE, left, i, MPI_COMM_WORLD, &requests[4 * i]);                \
      iallreduce(&outgoing[i], &sums[i], 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &requests[4 * i + 1]); \
      MPI_Isend(&outgoing[i], 1, MPI_DOUBLE, right, i, MPI_COMM_WORLD, &requests[4 * i + 2]);           \
      ibcast(&incoming[PAIRS + i], 1, MPI_DOUBLE, 0, MPI_COMM_WORLD, &requests[4 * i + 3]);             \
    }                                                                                                   \
    MPI_Waitall(REQUESTS, requests, MPI_STATUSES_IGNORE);                                               \
  }
EXCHANGE(mixed, MPI_Iallreduce, MPI_Ibcast)
EXCHANGE(mixed_directly, PMPI_Iallreduce, PMPI_Ibcast)

static double seconds_of(void (*call)(void), int calls) {
  PMPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  for (int i = 0; i < calls; ++i) call();
  return (MPI_Wtime() - begin) / calls;
}

static void compare(const char* name, void (*intercepted)(void), void (*directly)(void), int calls, int rounds) {
  static double first[MOST_ROUNDS], second[MOST_ROUNDS], differences[MOST_ROUNDS];
  for (int i = 0; i < rounds; ++i) {
    if (i % 2 == 0) {
      first[i] = seconds_of(intercepted, calls);
      second[i] = seconds_of(directly, calls);
    } else {
      second[i] = seconds_of(directly, calls);
      first[i] = seconds_of(intercepted, calls);
    }
    differences[i] = first[i] - second[i];
  }
  const double difference = median(differences, rounds), with = median(first, rounds), without = median(second, rounds);
  if (rank == 0)
    printf(
        "{\"what\": \"%s\", \"ranks\": %d, \"intercepted_ns\": %.1f, \"direct_ns\": %.1f, \"difference_ns\": %.1f, "
        "\"least_difference_ns\": %.1f, \"ratio\": %.3f}\n",
        name, ranks, with * 1e9, without * 1e9, difference * 1e9, (first[0] - second[0]) * 1e9, with / without);
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  const int given = argc > 1 ? atoi(argv[1]) : 2000;
  const int rounds = given < 1 ? 1 : given > MOST_ROUNDS ? MOST_ROUNDS : given;
  for (int i = 0; i < 20; ++i) served(); /* prepares the communicator */
  CHECK(total == ranks);
  for (int i = 0; i < REQUESTS; ++i) outgoing[i] = rank + i;
  mixed();
  for (int i = 0; i < PAIRS; ++i) {
    CHECK(incoming[i] == (rank + ranks - 1) % ranks + i);
    CHECK(sums[i] == ranks * i + ranks * (ranks - 1) / 2);
  }
  MPI_Op_create(add, 1, &own_sum);
  by_own_sum();
  CHECK(total == ranks);
  const create_function create = (create_function)dlsym(RTLD_DEFAULT, "penstock_comm_create");
  const free_function release = (free_function)dlsym(RTLD_DEFAULT, "penstock_comm_free");
  direct_allreduce = (allreduce_function)dlsym(RTLD_DEFAULT, "penstock_allreduce");
  if (create != NULL && create(MPI_COMM_WORLD, -1, &direct) == 0) {
    compare("allreduce of 8 bytes, served", served, served_directly, CALLS, rounds);
    release(direct);
  }
  compare("allreduce of 8 bytes, one rank", alone, alone_directly, CALLS, rounds);
  compare("allreduce of 8 bytes, an operation of the program", by_own_sum, by_own_sum_directly, CALLS, rounds);
  compare("64 mixed requests and Waitall", mixed, mixed_directly, 4, rounds);
  MPI_Op_free(&own_sum);
  MPI_Finalize();
  return 0;
}
