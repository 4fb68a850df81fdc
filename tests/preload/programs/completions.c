/* completions [multiple] [native] COUNT...: every non-blocking and every persistent collective, with int and with large
 * counts, in every call that completes requests, in lists with messages, against values computed here. Blocks have
 * COUNT elements. native: without the calls that fail for MPICH's own persistent collectives. */
#include "check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_RANKS = 8, SLOTS = 24, GUARD = 2 };
enum Form { NONBLOCKING, PERSISTENT, NONBLOCKING_LARGE, PERSISTENT_LARGE };

static int most, n, turn; /* elements of a buffer; of a block; of the values */
static int below, above;  /* in the ring */
static MPI_Comm world, ring;

struct Slot {
  int *from, *to, root;
};
static struct Slot slots[SLOTS];

static int value(int of, int at) { return 1000000 * (of + 1) + 10 * at + turn % 10; }
static int sum(int many, int at) {
  int total = 0;
  for (int of = 0; of < many; ++of) total += value(of, at);
  return total;
}

/* Blocks of unequal lengths, with holes before them. */
static int length(int of) { return of % 2 == 0 ? n : n / 2; }
static int place(int block) { return block * (n + 1) + 1; }
static int neighbor(int block) { return block == 0 ? below : above; }
static int offset(int of) {
  int before = 0;
  for (int r = 0; r < of; ++r) before += length(r);
  return before;
}

struct Lists {
  int lengths[MOST_RANKS], both[MOST_RANKS], places[MOST_RANKS], bytes[MOST_RANKS];
  int near_lengths[2], near_both[2];
};
static struct Lists small_lists;
static MPI_Aint far[MOST_RANKS];
static MPI_Datatype types[MOST_RANKS];
#if MPI_VERSION >= 4
static struct {
  MPI_Count lengths[MOST_RANKS], both[MOST_RANKS], near_lengths[2], near_both[2];
  MPI_Aint places[MOST_RANKS], bytes[MOST_RANKS];
} large_lists;
#define FORMS 4
#else
#define FORMS 2
#endif

static void fill_lists(void) {
  struct Lists* const l = &small_lists;
  for (int r = 0; r < MOST_RANKS; ++r) {
    l->lengths[r] = length(r);
    l->both[r] = length(rank + r); /* from this rank to r, and back */
    l->places[r] = place(r);
    far[r] = l->bytes[r] = place(r) * (int)sizeof(int);
    types[r] = MPI_INT;
  }
  for (int k = 0; k < 2; ++k) {
    l->near_lengths[k] = length(neighbor(k));
    l->near_both[k] = length(rank + neighbor(k));
  }
#if MPI_VERSION >= 4
  for (int r = 0; r < MOST_RANKS; ++r) {
    large_lists.lengths[r] = l->lengths[r], large_lists.both[r] = l->both[r];
    large_lists.places[r] = l->places[r], large_lists.bytes[r] = l->bytes[r];
  }
  for (int k = 0; k < 2; ++k)
    large_lists.near_lengths[k] = l->near_lengths[k], large_lists.near_both[k] = l->near_both[k];
#endif
}

/* OPERATION(name after MPI_, name after MPI_I, arguments, what `to` holds at i where b and at are the block and the
 * place in it of equal blocks, vb and vat of those with holes; -1: untouched) */
#define MOVED(condition, what) ((condition) ? (what) : -1)
#define WHERE_LARGE_COUNTS_ARE(OPERATION)                                                                              \
  OPERATION(Bcast, bcast, (s->to, n, MPI_INT, s->root, world), MOVED(i < n, value(s->root, i)))                        \
  OPERATION(Reduce, reduce, (s->from, s->to, n, MPI_INT, MPI_SUM, s->root, world),                                     \
            MOVED(rank == s->root && i < n, sum(ranks, i)))                                                            \
  OPERATION(Allreduce, allreduce, (s->from, s->to, n, MPI_INT, MPI_SUM, world), MOVED(i < n, sum(ranks, i)))           \
  OPERATION(Reduce_scatter_block, reduce_scatter_block, (s->from, s->to, n, MPI_INT, MPI_SUM, world),                  \
            MOVED(i < n, sum(ranks, rank * n + i)))                                                                    \
  OPERATION(Reduce_scatter, reduce_scatter, (s->from, s->to, l->lengths, MPI_INT, MPI_SUM, world),                     \
            MOVED(i < length(rank), sum(ranks, offset(rank) + i)))                                                     \
  OPERATION(Scan, scan, (s->from, s->to, n, MPI_INT, MPI_SUM, world), MOVED(i < n, sum(rank + 1, i)))                  \
  OPERATION(Exscan, exscan, (s->from, s->to, n, MPI_INT, MPI_SUM, world), MOVED(rank > 0 && i < n, sum(rank, i)))      \
  OPERATION(Gather, gather, (s->from, n, MPI_INT, s->to, n, MPI_INT, s->root, world),                                  \
            MOVED(rank == s->root && b < ranks, value(b, at)))                                                         \
  OPERATION(Gatherv, gatherv, (s->from, length(rank), MPI_INT, s->to, l->lengths, l->places, MPI_INT, s->root, world), \
            MOVED(rank == s->root && vb < ranks && vat >= 0 && vat < length(vb), value(vb, vat)))                      \
  OPERATION(Scatter, scatter, (s->from, n, MPI_INT, s->to, n, MPI_INT, s->root, world),                                \
            MOVED(i < n, value(s->root, rank * n + i)))                                                                \
  OPERATION(Scatterv, scatterv,                                                                                        \
            (s->from, l->lengths, l->places, MPI_INT, s->to, length(rank), MPI_INT, s->root, world),                   \
            MOVED(i < length(rank), value(s->root, place(rank) + i)))                                                  \
  OPERATION(Allgather, allgather, (s->from, n, MPI_INT, s->to, n, MPI_INT, world), MOVED(b < ranks, value(b, at)))     \
  OPERATION(Allgatherv, allgatherv, (s->from, length(rank), MPI_INT, s->to, l->lengths, l->places, MPI_INT, world),    \
            MOVED(vb < ranks && vat >= 0 && vat < length(vb), value(vb, vat)))                                         \
  OPERATION(Alltoall, alltoall, (s->from, n, MPI_INT, s->to, n, MPI_INT, world),                                       \
            MOVED(b < ranks, value(b, rank * n + at)))                                                                 \
  OPERATION(Alltoallv, alltoallv, (s->from, l->both, l->places, MPI_INT, s->to, l->both, l->places, MPI_INT, world),   \
            MOVED(vb < ranks && vat >= 0 && vat < length(rank + vb), value(vb, place(rank) + vat)))                    \
  OPERATION(Alltoallw, alltoallw, (s->from, l->both, l->bytes, types, s->to, l->both, l->bytes, types, world),         \
            MOVED(vb < ranks && vat >= 0 && vat < length(rank + vb), value(vb, place(rank) + vat)))                    \
  OPERATION(Neighbor_allgather, neighbor_allgather, (s->from, n, MPI_INT, s->to, n, MPI_INT, ring),                    \
            MOVED(b < 2, value(neighbor(b), at)))                                                                      \
  OPERATION(Neighbor_allgatherv, neighbor_allgatherv,                                                                  \
            (s->from, length(rank), MPI_INT, s->to, l->near_lengths, l->places, MPI_INT, ring),                        \
            MOVED(vb < 2 && vat >= 0 && vat < length(neighbor(vb)), value(neighbor(vb), vat)))                         \
  OPERATION(Neighbor_alltoall, neighbor_alltoall, (s->from, n, MPI_INT, s->to, n, MPI_INT, ring),                      \
            MOVED(b < 2, value(neighbor(b), (1 - b) * n + at)))                                                        \
  OPERATION(Neighbor_alltoallv, neighbor_alltoallv,                                                                    \
            (s->from, l->near_both, l->places, MPI_INT, s->to, l->near_both, l->places, MPI_INT, ring),                \
            MOVED(vb < 2 && vat >= 0 && vat < length(rank + neighbor(vb)), value(neighbor(vb), place(1 - vb) + vat)))  \
  OPERATION(Neighbor_alltoallw, neighbor_alltoallw,                                                                    \
            (s->from, l->near_both, far, types, s->to, l->near_both, far, types, ring),                                \
            MOVED(vb < 2 && vat >= 0 && vat < length(rank + neighbor(vb)), value(neighbor(vb), place(1 - vb) + vat)))

#define LIST(...) __VA_ARGS__
#if MPI_VERSION >= 4
#define MAKE_LARGE(large, small, arguments)                                                                           \
  do {                                                                                                                \
    const __typeof__(large_lists)* const l = &large_lists;                                                            \
    (void)l;                                                                                                          \
    if (form == NONBLOCKING_LARGE) CHECK(MPI_I##small##_c(LIST arguments, request) == MPI_SUCCESS);                   \
    if (form == PERSISTENT_LARGE) CHECK(MPI_##large##_init_c(LIST arguments, MPI_INFO_NULL, request) == MPI_SUCCESS); \
  } while (0)
#else
#define MAKE_LARGE(large, small, arguments) (void)form
#endif
#define MAKE(large, small, arguments)                                                                         \
  do {                                                                                                        \
    const struct Lists* const l = &small_lists;                                                               \
    (void)l;                                                                                                  \
    if (form == NONBLOCKING) CHECK(MPI_I##small(LIST arguments, request) == MPI_SUCCESS);                     \
    if (form == PERSISTENT) CHECK(MPI_##large##_init(LIST arguments, MPI_INFO_NULL, request) == MPI_SUCCESS); \
  } while (0)

#define DEFINE(large, small, arguments, expected)                                  \
  static void make_##small(struct Slot* s, enum Form form, MPI_Request* request) { \
    MAKE(large, small, arguments);                                                 \
    MAKE_LARGE(large, small, arguments);                                           \
  }                                                                                \
  static int expected_##small(const struct Slot* s, int i) {                       \
    const int b = i / n, at = i % n, vb = i / (n + 1), vat = i % (n + 1) - 1;      \
    (void)s, (void)b, (void)at, (void)vb, (void)vat;                               \
    return expected;                                                               \
  }
WHERE_LARGE_COUNTS_ARE(DEFINE)

/* What each rank has come to, in memory that all see: no barrier may complete before all have started it. */
static int* entered;

static void share_entered(void) {
  char name[] = "/tmp/completions-XXXXXX";
  int file = -1;
  if (rank == 0) CHECK((file = mkstemp(name)) >= 0 && ftruncate(file, sizeof(int) * MOST_RANKS) == 0);
  MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
  if (rank > 0) CHECK((file = open(name, O_RDWR)) >= 0);
  entered = mmap(NULL, sizeof(int) * MOST_RANKS, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  CHECK(entered != MAP_FAILED);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) unlink(name);
  close(file);
}

static void make_barrier(struct Slot* s, enum Form form, MPI_Request* request) {
  (void)s;
  if (form == NONBLOCKING || form == NONBLOCKING_LARGE)
    CHECK(MPI_Ibarrier(world, request) == MPI_SUCCESS);
  else
    CHECK(MPI_Barrier_init(world, MPI_INFO_NULL, request) == MPI_SUCCESS);
}

static int expected_barrier(const struct Slot* s, int i) {
  (void)s;
  for (int r = 0; i == 0 && r < ranks; ++r) CHECK(__atomic_load_n(&entered[r], __ATOMIC_SEQ_CST) >= turn);
  return -1;
}

#define ROW(large, small, arguments, expected) {#small, make_##small, expected_##small},
static const struct Operation {
  const char* name;
  void (*make)(struct Slot*, enum Form, MPI_Request*);
  int (*expected)(const struct Slot*, int);
} operations[] = {{"barrier", make_barrier, expected_barrier}, WHERE_LARGE_COUNTS_ARE(ROW)};
enum { OPERATIONS = sizeof operations / sizeof *operations, MOST = 4 + OPERATIONS };

/* A list: some operations, and a message from the rank before and to the next one at `at` and behind it. */
static struct {
  int count, operations[MOST], at;
  int sent, received;
  int is_seen[MOST]; /* by the call that completes */
  MPI_Request requests[MOST];
  MPI_Status statuses[MOST];
} list;

static int is_message(int place) { return place == list.at || place == list.at + 1; }

static void fill(void) {
  ++turn;
  list.sent = value(rank, 0), list.received = -1;
  memset(list.is_seen, 0, sizeof list.is_seen);
  for (int k = 0, slot = 0; k < list.count; ++k) {
    if (is_message(k)) continue;
    struct Slot* const s = &slots[slot++];
    const int is_root_of_bcast = strcmp(operations[list.operations[k]].name, "bcast") == 0 && rank == s->root;
    for (int i = 0; i < most; ++i) s->from[i] = value(rank, i), s->to[i] = is_root_of_bcast && i < n ? s->from[i] : -1;
  }
  __atomic_store_n(&entered[rank], turn, __ATOMIC_SEQ_CST);
}

static void make(enum Form form) {
  const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
  const int is_persistent = form == PERSISTENT || form == PERSISTENT_LARGE;
  for (int k = 0, slot = 0; k < list.count; ++k) {
    MPI_Request* const request = &list.requests[k];
    if (!is_message(k))
      operations[list.operations[k]].make(&slots[slot++], form, request);
    else if (k == list.at)
      (is_persistent ? MPI_Recv_init : MPI_Irecv)(&list.received, 1, MPI_INT, before, 5, MPI_COMM_WORLD, request);
    else
      (is_persistent ? MPI_Send_init : MPI_Isend)(&list.sent, 1, MPI_INT, next, 5, MPI_COMM_WORLD, request);
  }
}

static void see(int place) {
  CHECK(place >= 0 && place < list.count && !list.is_seen[place]);
  list.is_seen[place] = 1;
}

static void check(int is_persistent, int has_statuses) {
  const int before = (rank + ranks - 1) % ranks;
  for (int k = 0, slot = 0; k < list.count; ++k) {
    CHECK(list.is_seen[k]);
    CHECK(is_persistent == (list.requests[k] != MPI_REQUEST_NULL));
    if (k == list.at && has_statuses) {
      int count = -1;
      MPI_Get_count(&list.statuses[k], MPI_INT, &count);
      CHECK(count == 1 && list.statuses[k].MPI_SOURCE == before && list.statuses[k].MPI_TAG == 5);
    }
    if (is_message(k)) continue;
    const struct Slot* const s = &slots[slot++];
    const struct Operation* const operation = &operations[list.operations[k]];
    for (int i = 0; i < most; ++i)
      if (s->to[i] != operation->expected(s, i)) {
        fprintf(stderr, "rank %d: %s: %d at %d, expected %d\n", rank, operation->name, s->to[i], i,
                operation->expected(s, i));
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
    if (has_statuses) {
      int is_cancelled = -1;
      MPI_Test_cancelled(&list.statuses[k], &is_cancelled);
      CHECK(is_cancelled == 0);
    }
  }
  CHECK(list.received == value(before, 0));
}

/* The calls. `all`: statuses, or MPI_STATUSES_IGNORE; status_of(): of one place, or MPI_STATUS_IGNORE. */
static MPI_Status* all;

static MPI_Status* status_of(int place) { return all == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &all[place]; }

static void keep_status(int place, const MPI_Status* status) {
  see(place);
  if (all != MPI_STATUSES_IGNORE) all[place] = *status;
}

static void see_all(void) {
  for (int k = 0; k < list.count; ++k) see(k);
}

static void by_wait(void) {
  for (int k = 0; k < list.count; ++k) CHECK(MPI_Wait(&list.requests[k], status_of(k)) == MPI_SUCCESS);
  see_all();
}

static void by_test(void) {
  for (int k = 0; k < list.count; ++k)
    for (int done = 0; !done;) CHECK(MPI_Test(&list.requests[k], &done, status_of(k)) == MPI_SUCCESS);
  see_all();
}

static void by_waitall(void) {
  CHECK(MPI_Waitall(list.count, list.requests, all) == MPI_SUCCESS);
  see_all();
}

static void by_testall(void) {
  for (int done = 0; !done;) CHECK(MPI_Testall(list.count, list.requests, &done, all) == MPI_SUCCESS);
  see_all();
}

/* One is MPI_REQUEST_NULL or inactive when the others are completed together. MPICH 5.0 ends the job for a list with
 * MPI_REQUEST_NULL and a generalized request that is not yet complete. */
static void after_wait(void (*complete)(void)) {
  MPI_Status received;
  MPI_Wait(&list.requests[list.at], &received);
  complete();
  if (all == MPI_STATUSES_IGNORE) return;
  int count = -1;
  MPI_Get_count(&all[list.at], MPI_INT, &count);
  CHECK(count == 0 && all[list.at].MPI_SOURCE == MPI_ANY_SOURCE && all[list.at].MPI_TAG == MPI_ANY_TAG);
  all[list.at] = received;
}

static void by_waitall_after_wait(void) { after_wait(by_waitall); }
static void by_testall_after_wait(void) { after_wait(by_testall); }

static void by_waitany(void) {
  int index = -1;
  MPI_Status status;
  for (int left = list.count; left > 0; --left) {
    CHECK(MPI_Waitany(list.count, list.requests, &index, &status) == MPI_SUCCESS);
    keep_status(index, &status);
  }
  CHECK(MPI_Waitany(list.count, list.requests, &index, MPI_STATUS_IGNORE) == MPI_SUCCESS && index == MPI_UNDEFINED);
}

static void by_testany(void) {
  int index = -1, done = 0;
  MPI_Status status;
  for (int left = list.count; left > 0;) {
    CHECK(MPI_Testany(list.count, list.requests, &index, &done, &status) == MPI_SUCCESS);
    if (!done) continue;
    keep_status(index, &status);
    --left;
  }
  CHECK(MPI_Testany(list.count, list.requests, &index, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS);
  CHECK(done && index == MPI_UNDEFINED);
}

static void by_some(int (*call)(int, MPI_Request*, int*, int*, MPI_Status*), int least) {
  int indices[MOST], some = 0;
  MPI_Status statuses[MOST];
  for (int left = list.count; left > 0; left -= some) {
    CHECK(call(list.count, list.requests, &some, indices, statuses) == MPI_SUCCESS);
    CHECK(some >= least && some <= left);
    for (int i = 0; i < some; ++i) keep_status(indices[i], &statuses[i]);
  }
  CHECK(call(list.count, list.requests, &some, indices, MPI_STATUSES_IGNORE) == MPI_SUCCESS && some == MPI_UNDEFINED);
}

static void by_waitsome(void) { by_some(MPI_Waitsome, 1); }
static void by_testsome(void) { by_some(MPI_Testsome, 0); }

static void by_get_status(void) {
  for (int k = 0; k < list.count; ++k) {
    for (int done = 0; !done;) CHECK(MPI_Request_get_status(list.requests[k], &done, status_of(k)) == MPI_SUCCESS);
    CHECK(list.requests[k] != MPI_REQUEST_NULL);
    MPI_Wait(&list.requests[k], MPI_STATUS_IGNORE);
  }
  see_all();
}

#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
static void by_get_status_all(void) {
  for (int done = 0; !done;) CHECK(MPI_Request_get_status_all(list.count, list.requests, &done, all) == MPI_SUCCESS);
  CHECK(list.requests[list.at + 1] != MPI_REQUEST_NULL);
  MPI_Waitall(list.count, list.requests, MPI_STATUSES_IGNORE);
  see_all();
}

static void by_get_status_all_after_wait(void) { after_wait(by_get_status_all); }

static void by_get_status_any(void) {
  int index = -1, done = 0;
  MPI_Status status;
  for (int left = list.count; left > 0;) {
    CHECK(MPI_Request_get_status_any(list.count, list.requests, &index, &done, &status) == MPI_SUCCESS);
    if (!done) continue;
    keep_status(index, &status);
    MPI_Wait(&list.requests[index], MPI_STATUS_IGNORE);
    --left;
  }
  CHECK(MPI_Request_get_status_any(list.count, list.requests, &index, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS);
  CHECK(done && index == MPI_UNDEFINED);
}

static int get_status_some(int count, MPI_Request* requests, int* some, int* indices, MPI_Status* statuses) {
  const int result = MPI_Request_get_status_some(count, requests, some, indices, statuses);
  for (int i = 0; i < *some; ++i) MPI_Wait(&requests[indices[i]], MPI_STATUS_IGNORE);
  return result;
}

static void by_get_status_some(void) { by_some(get_status_some, 0); }
#endif

static const struct {
  void (*complete)(void);
  int fails_in_mpich;
} calls[] = {
    {by_wait, 0},           {by_test, 0},
    {by_waitall, 0},        {by_waitall_after_wait, 0},
    {by_testall, 1},        {by_testall_after_wait, 1},
    {by_waitany, 0},        {by_testany, 0},
    {by_waitsome, 0},       {by_testsome, 0},
    {by_get_status, 0},
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
    {by_get_status_all, 1}, {by_get_status_all_after_wait, 1},
    {by_get_status_any, 0}, {by_get_status_some, 0},
#endif
};
enum { CALLS = sizeof calls / sizeof *calls };

/* Completed persistent requests are inactive: they stay, and to complete them again gives an empty status. */
static void check_inactive(void) {
  for (int k = 0; k < list.count; ++k) {
    MPI_Status status;
    int done = 0;
    CHECK(MPI_Test(&list.requests[k], &done, &status) == MPI_SUCCESS);
    CHECK(done && status.MPI_TAG == MPI_ANY_TAG && status.MPI_SOURCE == MPI_ANY_SOURCE);
    CHECK(MPI_Wait(&list.requests[k], &status) == MPI_SUCCESS);
  }
}

static int is_native;
static int starts[2]; /* of each operation: non-blocking, persistent */

static void complete(int call, int is_persistent) {
  all = turn % 3 == 0 ? MPI_STATUSES_IGNORE : list.statuses;
  calls[call].complete();
  check(is_persistent, all != MPI_STATUSES_IGNORE);
}

static void run(enum Form form) {
  const int is_persistent = form == PERSISTENT || form == PERSISTENT_LARGE;
  if (is_persistent) make(form);
  for (int call = 0; call < CALLS; ++call) {
    if (is_persistent && is_native && calls[call].fails_in_mpich) continue;
    if (list.count > 4) starts[is_persistent] += 3; /* the list of all comes after each operation twice */
    fill();
    if (!is_persistent)
      make(form);
    else if (call % 2 == 0)
      CHECK(MPI_Startall(list.count, list.requests) == MPI_SUCCESS);
    else
      for (int k = 0; k < list.count; ++k) CHECK(MPI_Start(&list.requests[k]) == MPI_SUCCESS);
    complete(call, is_persistent);
    if (is_persistent) check_inactive();
  }
  for (int k = 0; is_persistent && k < list.count; ++k) {
    CHECK(MPI_Request_free(&list.requests[k]) == MPI_SUCCESS);
    CHECK(list.requests[k] == MPI_REQUEST_NULL);
  }
}

/* Each operation twice, on two roots, and all of them in one list. */
static void run_all(int count) {
  n = count;
  fill_lists();
  for (enum Form form = 0; form < FORMS; ++form) {
    for (int k = 0; k < SLOTS; ++k) slots[k].root = k % ranks;
    for (int operation = 0; operation < OPERATIONS; ++operation) {
      list.count = 4, list.at = operation % 3;
      for (int k = 0; k < 4; ++k) list.operations[k] = operation;
      run(form);
    }
    list.count = OPERATIONS + 2, list.at = OPERATIONS / 2;
    for (int k = 0; k < list.count; ++k) list.operations[k] = k < list.at ? k : k - 2;
    run(form);
  }
}

int main(int argc, char** argv) {
  int first = 1;
  if (argc > 1 && strcmp(argv[1], "multiple") == 0) {
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    first = 2;
  } else {
    begin(&argc, &argv);
  }
  CHECK(ranks <= MOST_RANKS);
  is_native = first < argc && strcmp(argv[first], "native") == 0;
  first += is_native;
  const int periodic = 1;
  MPI_Comm_dup(MPI_COMM_WORLD, &world);
  MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, &periodic, 0, &ring);
  MPI_Cart_shift(ring, 0, 1, &below, &above);
  share_entered();
  for (int argument = first; argument < argc; ++argument)
    if (atoi(argv[argument]) > most) most = atoi(argv[argument]);
  most = (ranks > 2 ? ranks : 2) * (most + 1) + GUARD;
  for (int k = 0; k < SLOTS; ++k) {
    slots[k].from = malloc(sizeof(int) * (size_t)most);
    slots[k].to = malloc(sizeof(int) * (size_t)most);
  }
  MPI_Barrier(world);
  MPI_Barrier(ring);
  for (int argument = first; argument < argc; ++argument) run_all(atoi(argv[argument]));
  if (rank == 0) printf("completions: ok %d %d\n", starts[0], starts[1]);
  MPI_Finalize();
  return 0;
}
