/* Operations with lists of counts, of which each rank knows its own only: nothing on some ranks, much on others. The
 * argument says how long the longest block is, in ints. With COUNTS_MOVE_NOTHING a tool's functions move nothing, and
 * what a rank receives is in its buffer before. */
#include "check.h"

enum { CALLS = 300, RANKS = 8 };

static int counts[RANKS], displacements[RANKS], send_counts[RANKS], send_displacements[RANKS];
static int byte_displacements[RANKS], send_byte_displacements[RANKS];
static MPI_Datatype types[RANKS];

/* Blocks one after the other; returns their length. */
static int lay_out(const int* lengths, int* starts, int* starts_bytes) {
  int total = 0;
  for (int each = 0; each < ranks; ++each) {
    starts[each] = total;
    starts_bytes[each] = total * (int)sizeof(int);
    total += lengths[each];
  }
  return total;
}

/* What `from` has for `to` in a call. */
static int length_of(int from, int to, int call, int longest) {
  return (from + to + call) % 3 == 0 ? 0 : from == 0 ? longest : 1 + (from + to) % 3;
}

static int value_of(int from, int to) { return 100 * from + to; }

static void check(const int* received, int from, int to, int length) {
  for (int i = 0; i < length; ++i) CHECK(received[i] == value_of(from, to));
}

/* The buffer for a block, before the call. */
static void expect(int* block, int from, int to, int length) {
  static int is_there = -1;
  if (is_there < 0) is_there = getenv("COUNTS_MOVE_NOTHING") != NULL;
  for (int i = 0; i < length; ++i) block[i] = is_there ? value_of(from, to) : -1;
}

static void fill(int* block, int from, int to, int length) {
  for (int i = 0; i < length; ++i) block[i] = value_of(from, to);
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  const MPI_Comm comm = MPI_COMM_WORLD;
  const int longest = argc > 1 ? atoi(argv[1]) : 4;
  int* const sent = malloc((size_t)(ranks * (longest + 4)) * sizeof(int));
  int* const received = malloc((size_t)(ranks * (longest + 4)) * sizeof(int));
  MPI_Barrier(comm);
  for (int call = 0; call < CALLS; ++call) {
    const int root = call % ranks;
    for (int each = 0; each < ranks; ++each) {
      types[each] = MPI_INT;
      counts[each] = length_of(each, root, call, longest);
    }
    lay_out(counts, displacements, byte_displacements);
    fill(sent, rank, root, counts[rank]);
    if (rank == root)
      for (int each = 0; each < ranks; ++each) expect(received + displacements[each], each, root, counts[each]);
    const int significant = rank == root; /* elsewhere no list is there */
    MPI_Gatherv(sent, counts[rank], MPI_INT, received, significant ? counts : NULL, significant ? displacements : NULL,
                MPI_INT, root, comm);
    if (significant)
      for (int each = 0; each < ranks; ++each) check(received + displacements[each], each, root, counts[each]);

    for (int each = 0; each < ranks; ++each) counts[each] = length_of(root, each, call, longest);
    lay_out(counts, displacements, byte_displacements);
    for (int each = 0; each < ranks; ++each) fill(sent + displacements[each], root, each, counts[each]);
    expect(received, root, rank, counts[rank]);
    MPI_Scatterv(sent, significant ? counts : NULL, significant ? displacements : NULL, MPI_INT, received, counts[rank],
                 MPI_INT, root, comm);
    check(received, root, rank, counts[rank]);

    for (int each = 0; each < ranks; ++each) {
      counts[each] = length_of(each, rank, call, longest);
      send_counts[each] = length_of(rank, each, call, longest);
    }
    lay_out(counts, displacements, byte_displacements);
    lay_out(send_counts, send_displacements, send_byte_displacements);
    for (int each = 0; each < ranks; ++each) {
      fill(sent + send_displacements[each], rank, each, send_counts[each]);
      expect(received + displacements[each], each, rank, counts[each]);
    }
    MPI_Alltoallv(sent, send_counts, send_displacements, MPI_INT, received, counts, displacements, MPI_INT, comm);
    for (int each = 0; each < ranks; ++each) check(received + displacements[each], each, rank, counts[each]);
    for (int each = 0; each < ranks; ++each) expect(received + displacements[each], each, rank, counts[each]);
    MPI_Alltoallw(sent, send_counts, send_byte_displacements, types, received, counts, byte_displacements, types, comm);
    for (int each = 0; each < ranks; ++each) check(received + displacements[each], each, rank, counts[each]);
    if (call % 5 == 0) MPI_Barrier(comm);
  }
  if (rank == 0) puts("counts: ok");
  free(sent);
  free(received);
  MPI_Finalize();
  return 0;
}
