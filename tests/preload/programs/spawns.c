/* A job that starts another one, and collectives between and across both.
 * Arguments: the command of the other job, which is to be this program; it has one process for each rank here. */
#include "check.h"

static void across(MPI_Comm comm) {
  int of_all = 0, mine = 0;
  MPI_Comm_size(comm, &of_all);
  MPI_Comm_rank(comm, &mine);
  for (int repetition = 0; repetition < 40; ++repetition) {
    int sum = mine + repetition, root = repetition % of_all, word = mine == root ? 7 * repetition : -1;
    MPI_Barrier(comm);
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, comm);
    CHECK(sum == of_all * (of_all - 1) / 2 + of_all * repetition);
    MPI_Bcast(&word, 1, MPI_INT, root, comm);
    CHECK(word == 7 * repetition);
  }
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  MPI_Comm between, all, again;
  MPI_Comm_get_parent(&between);
  const int is_parent = between == MPI_COMM_NULL;
  if (is_parent) {
    CHECK(argc >= 2);
    CHECK(MPI_Comm_spawn(argv[1], argv + 2, ranks, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &between, MPI_ERRCODES_IGNORE) ==
          MPI_SUCCESS);
  }
  across(MPI_COMM_WORLD);
  int sum = 0;
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, between);
  CHECK(sum == ranks * (ranks - 1) / 2);
  MPI_Intercomm_merge(between, !is_parent, &all);
  across(all);
  MPI_Comm_dup(all, &again);
  across(again);
  MPI_Comm_free(&again);
  MPI_Comm_free(&all);
  MPI_Comm_disconnect(&between);
  if (is_parent && rank == 0) puts("spawns: ok");
  MPI_Finalize();
  return 0;
}
