/* Non-blocking operations with lists of counts, of which each rank knows its own only: other ones in each call, nothing
 * on some ranks, any root, in place now and then, and calls that wait for all ranks between them. The arguments say how
 * long the longest block is, in ints, and how many calls there are. With LISTS_MOVE_NOTHING a tool's functions move
 * nothing, and what a rank receives is in its buffer before. */
#include "check.h"

enum { RANKS = 8 };

static int sent_counts[RANKS], sent_at[RANKS], sent_byte_at[RANKS];
static int counts[RANKS], at[RANKS], byte_at[RANKS];
static int *sent, *received;
static int is_there;

/* Blocks with a gap before each. */
static void lay_out(const int* lengths, int* starts, int* byte_starts) {
  int end = 0;
  for (int each = 0; each < ranks; ++each) {
    starts[each] = end + 1;
    byte_starts[each] = starts[each] * (int)sizeof(int);
    end = starts[each] + lengths[each];
  }
}

/* Equal both ways, as an exchange in place wants it. */
static int length_of(int one, int other, int call, int longest) {
  if ((one + other + call) % 3 == 0) return 0;
  return one * other == 0 && call % 2 == 0 ? longest : 1 + (one + other + call) % 4;
}

static int value_of(int one, int other) { return 100 * (one + other) + one * other; }

static void fill(int* block, int length, int value) {
  for (int i = 0; i < length; ++i) block[i] = value;
}

static void check(const int* block, int length, int value) {
  for (int i = 0; i < length; ++i) CHECK(block[i] == value);
}

/* They may change when the call has completed. */
static void spoil_lists(void) {
  for (int each = 0; each < RANKS; ++each) sent_counts[each] = counts[each] = -1;
}

/* The lists and buffers for blocks of this rank and each other one. */
static void prepare(int with_all, int call, int longest, int in_place) {
  for (int each = 0; each < ranks; ++each) {
    const int length = with_all ? length_of(rank, each, call, longest) : 0;
    sent_counts[each] = counts[each] = length;
  }
  lay_out(sent_counts, sent_at, sent_byte_at);
  lay_out(counts, at, byte_at);
  for (int each = 0; each < ranks; ++each) {
    fill(sent + sent_at[each], sent_counts[each], value_of(rank, each));
    fill(received + at[each], counts[each], is_there || in_place ? value_of(rank, each) : -1);
  }
}

static void gather(int call, int longest, int in_place) {
  const int root = call % ranks, length = length_of(rank, root, call, longest);
  MPI_Request request;
  prepare(rank == root, call, longest, 0);
  if (rank == root && in_place) fill(received + at[rank], length, value_of(rank, root));
  if (rank != root) fill(sent, length, value_of(rank, root));
  const int* const from = rank == root ? sent + sent_at[rank] : sent;
  MPI_Igatherv(in_place && rank == root ? MPI_IN_PLACE : from, length, MPI_INT, received, rank == root ? counts : NULL,
               rank == root ? at : NULL, MPI_INT, root, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  if (rank != root) return;
  for (int each = 0; each < ranks; ++each) check(received + at[each], counts[each], value_of(rank, each));
}

static void scatter(int call, int longest, int in_place) {
  const int root = (call + 1) % ranks, length = length_of(rank, root, call, longest);
  MPI_Request request;
  prepare(rank == root, call, longest, 0);
  fill(received, length, is_there ? value_of(rank, root) : -1);
  MPI_Iscatterv(sent, rank == root ? sent_counts : NULL, rank == root ? sent_at : NULL, MPI_INT,
                in_place && rank == root ? MPI_IN_PLACE : received, length, MPI_INT, root, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  if (in_place && rank == root) return;
  check(received, length, value_of(rank, root));
}

static void exchange(int call, int longest, int in_place, int has_types) {
  MPI_Datatype types[RANKS];
  MPI_Request request;
  for (int each = 0; each < RANKS; ++each) types[each] = MPI_INT;
  prepare(1, call, longest, in_place);
  void* const from = in_place ? MPI_IN_PLACE : sent;
  if (has_types)
    MPI_Ialltoallw(from, sent_counts, sent_byte_at, types, received, counts, byte_at, types, MPI_COMM_WORLD, &request);
  else
    MPI_Ialltoallv(from, sent_counts, sent_at, MPI_INT, received, counts, at, MPI_INT, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  for (int each = 0; each < ranks; ++each) check(received + at[each], counts[each], value_of(rank, each));
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  const int longest = argc > 1 ? atoi(argv[1]) : 4;
  const int calls = argc > 2 ? atoi(argv[2]) : 300;
  is_there = getenv("LISTS_MOVE_NOTHING") != NULL;
  CHECK(ranks <= RANKS && longest > 0);
  sent = malloc((size_t)(ranks * (longest + 5)) * sizeof(int));
  received = malloc((size_t)(ranks * (longest + 5)) * sizeof(int));
  MPI_Barrier(MPI_COMM_WORLD);
  for (int call = 0; call < calls; ++call) {
    const int in_place = call % 4 == 1;
    gather(call, longest, in_place);
    scatter(call, longest, in_place);
    exchange(call, longest, in_place, 0);
    exchange(call, longest, in_place, 1);
    spoil_lists();
    if (call % 5 == 4) MPI_Barrier(MPI_COMM_WORLD);
  }
  if (rank == 0) puts("rehearsed_lists: ok");
  free(sent);
  free(received);
  MPI_Finalize();
  return 0;
}
