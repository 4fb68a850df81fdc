/* Signals come while ranks wait in collectives. The handler does not let system calls go on (no SA_RESTART). */
#include "check.h"

#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

static volatile sig_atomic_t signals;

static void count(int number) {
  (void)number;
  ++signals;
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = count;
  sigaction(SIGALRM, &action, NULL);
  const struct itimerval each_ms = {{0, 1000}, {0, 1000}};
  setitimer(ITIMER_REAL, &each_ms, NULL);
  static int values[20000], sums[20000];
  for (int repetition = 0; repetition < 30; ++repetition) {
    const int count_elems = repetition % 3 == 0 ? 1 : repetition % 3 == 1 ? 1000 : 20000;
    for (int k = 0; k < count_elems; ++k) values[k] = rank + k;
    /* The others wait inside the collective until this rank has had three signals. */
    if (repetition % ranks == rank)
      for (const sig_atomic_t before = signals; signals < before + 3;) pause();
    MPI_Request request = MPI_REQUEST_NULL;
    if (repetition % 2 == 0)
      MPI_Allreduce(values, sums, count_elems, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    else
      MPI_Iallreduce(values, sums, count_elems, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int k = 0; k < count_elems; ++k) CHECK(sums[k] == ranks * (ranks - 1) / 2 + ranks * k);
  }
  const struct itimerval never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &never, NULL);
  CHECK(signals >= 3);
  if (rank == 0) puts("signals: ok");
  MPI_Finalize();
  return 0;
}
