/* Completes all requests by each call of the Test family. Included after the program has declared `requests` and
 * REQUESTS, their number. */
#ifndef COMPLETION_CALLS_H
#define COMPLETION_CALLS_H

static void by_test(void) {
  for (int i = 0; i < REQUESTS; ++i)
    for (int done = 0; !done;) MPI_Test(&requests[i], &done, MPI_STATUS_IGNORE);
}

static void by_testall(void) {
  for (int done = 0; !done;) MPI_Testall(REQUESTS, requests, &done, MPI_STATUSES_IGNORE);
}

static void by_testany(void) {
  for (int left = REQUESTS; left > 0;) {
    int done = 0, index = -1;
    MPI_Testany(REQUESTS, requests, &index, &done, MPI_STATUS_IGNORE);
    left -= done != 0;
  }
}

static void by_testsome(void) {
  int indices[REQUESTS], some = 0;
  for (int left = REQUESTS; left > 0; left -= some)
    MPI_Testsome(REQUESTS, requests, &some, indices, MPI_STATUSES_IGNORE);
}

#endif
