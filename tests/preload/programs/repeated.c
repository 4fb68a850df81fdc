/* Repeats calls, each of which differs from another one in a single argument, and checks all results. Prints the calls
 * and bytes of its allreduces, how many are by an operation of the program, and the bytes of its neighbor_allgathers.
 */
#include "check.h"

enum { TURNS = 60, MOST = 64 };

static int from[MOST], to[MOST];
static long allreduces, allreduced_bytes, own_allreduces, gathered_bytes;
static MPI_Comm ring; /* periodic */

static void least(void* in, void* inout, int* count, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *count; ++i)
    if (((int*)in)[i] < ((int*)inout)[i]) ((int*)inout)[i] = ((int*)in)[i];
}

static void fill(int turn) {
  for (int i = 0; i < MOST; ++i) {
    from[i] = 1000 * turn + 10 * rank + i;
    to[i] = -1;
  }
}

/* The sum over the ranks of element i. */
static int sum_of(int turn, int i) { return ranks * (1000 * turn + i) + 10 * (ranks * (ranks - 1) / 2); }

static void allreduce(int turn, int count, MPI_Op op, int in_place, int expected_first) {
  fill(turn);
  if (in_place) {
    memcpy(to, from, sizeof from);
    MPI_Allreduce(MPI_IN_PLACE, to, count, MPI_INT, op, MPI_COMM_WORLD);
  } else {
    MPI_Allreduce(from, to, count, MPI_INT, op, MPI_COMM_WORLD);
  }
  CHECK(to[0] == expected_first);
  CHECK(to[count] == (in_place ? from[count] : -1));
}

static void reductions(int turn, MPI_Op own) {
  const int lowest = 1000 * turn, highest = 1000 * turn + 10 * (ranks - 1);
  allreduce(turn, 1, MPI_SUM, 0, sum_of(turn, 0));
  allreduce(turn, 17, MPI_SUM, 0, sum_of(turn, 0)); /* perhaps in the place of the first one */
  allreduce(turn, 1, MPI_MAX, 0, highest);
  allreduce(turn, 1, MPI_SUM, 1, sum_of(turn, 0));
  allreduce(turn, 1, MPI_MIN, 0, lowest);
  allreduce(turn, 33, MPI_SUM, 0, sum_of(turn, 0));
  allreduces += 6;
  allreduced_bytes += (long)sizeof(int) * (1 + 17 + 1 + 1 + 1 + 33);
  allreduce(turn, 1, own, 0, lowest);
  ++own_allreduces;
  /* Other arguments than those of a call whose bytes are the same. */
  float halves = 0.5F, whole = 0;
  MPI_Allreduce(&halves, &whole, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  CHECK(whole == 0.5F * (float)ranks);
  ++allreduces;
  allreduced_bytes += (long)sizeof(float);
}

static void from_roots(int turn) {
  for (int root = 0; root < ranks; ++root) {
    fill(turn);
    MPI_Bcast(from, 3, MPI_INT, root, MPI_COMM_WORLD);
    CHECK(from[2] == 1000 * turn + 10 * root + 2);
    CHECK(from[3] == 1000 * turn + 10 * rank + 3);
    fill(turn);
    MPI_Gather(from, 2, MPI_INT, to, 2, MPI_INT, root, MPI_COMM_WORLD);
    for (int i = 0; i < ranks; ++i) CHECK(rank != root || to[2 * i + 1] == 1000 * turn + 10 * i + 1);
    fill(turn);
    if (rank == root) {
      memcpy(to + 2 * root, from, 2 * sizeof(int));
      MPI_Gather(MPI_IN_PLACE, 2, MPI_INT, to, 2, MPI_INT, root, MPI_COMM_WORLD);
      for (int i = 0; i < ranks; ++i) CHECK(to[2 * i] == 1000 * turn + 10 * i);
    } else {
      MPI_Gather(from, 2, MPI_INT, NULL, 0, MPI_DATATYPE_NULL, root, MPI_COMM_WORLD);
    }
  }
}

/* The addresses of lists stay; what they hold does not, or only a little. */
static void alltoallv(int turn) {
  static int counts[MOST], displacements[MOST], sent_displacements[MOST];
  for (int call = 0; call < 6; ++call) {
    const int length = 1 + (turn + call / 2) % 3, far = call % 2;
    for (int i = 0; i < ranks; ++i) {
      counts[i] = length;
      sent_displacements[i] = 3 * i + (far && i == ranks - 1 ? 1 : 0);
      displacements[i] = 4 * (i - call % 3); /* the buffer that is passed begins behind some blocks */
    }
    fill(turn);
    MPI_Alltoallv(from, counts, sent_displacements, MPI_INT, to + 4 * (call % 3), counts, displacements, MPI_INT,
                  MPI_COMM_WORLD);
    for (int i = 0; i < ranks; ++i) {
      for (int j = 0; j < length; ++j)
        CHECK(to[4 * i + j] == 1000 * turn + 10 * i + 3 * rank + (far && rank == ranks - 1 ? 1 : 0) + j);
      CHECK(to[4 * i + length] == -1);
    }
  }
}

/* As alltoallv(), of operations whose lengths all ranks know: other lists with the same sum or the same first entry, in
 * the same place, and equal ones in two places. */
static void known_lists(int turn) {
  static int counts[2][MOST], displacements[2][MOST];
  for (int call = 0; call < 12; ++call) {
    int *const count = counts[call / 6], *const at = displacements[call / 6];
    const int change = turn + call / 2, far = call % 2;
    int all = 0;
    for (int i = 0; i < ranks; ++i) {
      count[i] = i == 0 && turn % 2 == 0 ? 2 : 1 + (change + i) % 3;
      at[i] = all + (far && i == ranks - 1 ? 1 : 0);
      all += count[i];
    }
    fill(turn);
    MPI_Allgatherv(from, count[rank], MPI_INT, to, count, at, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < ranks; ++i)
      for (int j = 0; j < count[i]; ++j) CHECK(to[at[i] + j] == 1000 * turn + 10 * i + j);
    CHECK(!far || to[at[ranks - 1] - 1] == -1);
    CHECK(to[all + far] == -1);
    fill(turn);
    MPI_Reduce_scatter(from, to, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int j = 0; j < count[rank]; ++j) CHECK(to[j] == sum_of(turn, at[rank] - (far && rank == ranks - 1) + j));
    CHECK(to[count[rank]] == -1);
  }
}

/* Lists of a root alone; elsewhere there are none, or what is no list. */
static void lists_of_roots(int turn) {
  static int counts[MOST], displacements[MOST];
  for (int call = 0; call < 6; ++call) {
    const int root = (turn + call / 2) % ranks, length = 1 + turn % 3, far = call % 2;
    for (int i = 0; i < ranks; ++i) {
      counts[i] = length;
      displacements[i] = 4 * i + (far && i == 0 ? 1 : 0);
    }
    int *const given_counts = rank == root    ? counts
                              : call % 3 == 0 ? NULL
                                              : (int*)8,
               *const given = rank == root ? displacements : given_counts;
    fill(turn);
    MPI_Gatherv(from, length, MPI_INT, to, given_counts, given, MPI_INT, root, MPI_COMM_WORLD);
    for (int i = 0; i < ranks && rank == root; ++i)
      for (int j = 0; j < length; ++j) CHECK(to[displacements[i] + j] == 1000 * turn + 10 * i + j);
    CHECK(rank != root || !far || to[0] == -1);
    fill(turn);
    MPI_Scatterv(from, given_counts, given, MPI_INT, to, length, MPI_INT, root, MPI_COMM_WORLD);
    for (int j = 0; j < length; ++j)
      CHECK(to[j] == 1000 * turn + 10 * root + 4 * rank + (far && rank == 0 ? 1 : 0) + j);
    CHECK(to[length] == -1);
  }
}

/* Lengths that no rank knows of others: all calls of an operation are one kind for whoever serves them. */
static void neighbors(int turn) {
  static int counts[2], displacements[2], sent_displacements[2];
  const int peers[2] = {(rank + ranks - 1) % ranks, (rank + 1) % ranks};
  MPI_Barrier(ring);
  for (int call = 0; call < 6; ++call) {
    const int length = 1 + call / 2 * (call / 2) * 2;
    int* const into = to + call % 2; /* another buffer */
    fill(turn);
    MPI_Neighbor_allgather(from, length, MPI_INT, into, length, MPI_INT, ring);
    gathered_bytes += length * (long)sizeof(int);
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < length; ++j) CHECK(into[i * length + j] == 1000 * turn + 10 * peers[i] + j);
    CHECK(into[2 * length] == -1);
    fill(turn);
    MPI_Neighbor_alltoall(from, length, MPI_INT, into, length, MPI_INT, ring);
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < length; ++j)
        CHECK(into[i * length + j] == 1000 * turn + 10 * peers[i] + (1 - i) * length + j);
    CHECK(into[2 * length] == -1);
    for (int i = 0; i < 2; ++i) {
      counts[i] = length;
      sent_displacements[i] = 12 * i;
      displacements[i] = 12 * (i - call % 2);
    }
    fill(turn);
    MPI_Neighbor_alltoallv(from, counts, sent_displacements, MPI_INT, to + 12 * (call % 2), counts, displacements,
                           MPI_INT, ring);
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < length; ++j) CHECK(to[12 * i + j] == 1000 * turn + 10 * peers[i] + 12 * (1 - i) + j);
      CHECK(to[12 * i + length] == -1);
    }
  }
}

/* A freed handle may come back for a type of another length. */
static void types(int turn) {
  const int length = 2 + turn % 2;
  MPI_Datatype many;
  MPI_Type_contiguous(length, MPI_INT, &many);
  MPI_Type_commit(&many);
  fill(turn);
  MPI_Bcast(from, 1, many, 0, MPI_COMM_WORLD);
  CHECK(from[length - 1] == 1000 * turn + length - 1);
  CHECK(from[length] == 1000 * turn + 10 * rank + length);
  MPI_Type_free(&many);
}

/* A freed handle may come back for a communicator in which this rank is another one. */
static void communicators(int turn) {
  MPI_Comm turned;
  MPI_Comm_split(MPI_COMM_WORLD, 0, (rank + turn) % ranks, &turned);
  int first = -1;
  for (int i = 0; i < 3; ++i) {
    int number = rank;
    MPI_Barrier(turned);
    MPI_Bcast(&number, 1, MPI_INT, 0, turned);
    CHECK(first < 0 || first == number);
    first = number;
  }
  CHECK((first + turn) % ranks == 0);
  MPI_Comm_free(&turned);
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  MPI_Op own;
  MPI_Op_create(least, 1, &own);
  const int periodic = 1;
  MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, &periodic, 0, &ring);
  CHECK(4 * ranks + 2 * 4 < MOST);
  MPI_Barrier(MPI_COMM_WORLD);
  for (int turn = 1; turn <= TURNS; ++turn) {
    reductions(turn, own);
    reductions(turn, own);
    from_roots(turn);
    known_lists(turn);
    lists_of_roots(turn);
    alltoallv(turn);
    neighbors(turn);
    types(turn);
    communicators(turn);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Op_free(&own);
  MPI_Comm_free(&ring);
  if (rank == 0) printf("repeated: ok %ld %ld %ld %ld\n", allreduces, allreduced_bytes, own_allreduces, gathered_bytes);
  MPI_Finalize();
  return 0;
}
