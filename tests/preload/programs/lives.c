/* Many communicators, each used and freed: argument: how many. Nothing of this process may grow with their number. */
#include <dirent.h>
#include <unistd.h>

#include "check.h"

static int entries(const char* path, const char* prefix) {
  int count = 0;
  DIR* folder = opendir(path);
  for (struct dirent* entry; folder != NULL && (entry = readdir(folder)) != NULL;)
    count += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
  if (folder != NULL) closedir(folder);
  return count;
}

static int lines(const char* path) {
  int count = 0, letter;
  FILE* file = fopen(path, "r");
  while (file != NULL && (letter = fgetc(file)) != EOF) count += letter == '\n';
  if (file != NULL) fclose(file);
  return count;
}

static void live(void) {
  MPI_Comm comm;
  int mine = rank, all = 0;
  MPI_Comm_split(MPI_COMM_WORLD, 0, ranks - rank, &comm);
  MPI_Barrier(comm);
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, comm);
  CHECK(all == ranks * (ranks - 1) / 2);
  MPI_Request request;
  MPI_Iallreduce(&mine, &all, 1, MPI_INT, MPI_MAX, comm, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  CHECK(all == ranks - 1);
  MPI_Comm_free(&comm);
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  const int many = argc > 1 ? atoi(argv[1]) : 100;
  for (int i = 0; i < 20; ++i) live();
  char own[40]; /* other jobs may have theirs */
  snprintf(own, sizeof own, "penstock-%d-", (int)getpid());
  const int files = entries("/proc/self/fd", ""), maps = lines("/proc/self/maps");
  for (int i = 0; i < many; ++i) live();
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(entries("/proc/self/fd", "") <= files + 4);
  CHECK(lines("/proc/self/maps") <= maps + 30);
  CHECK(entries("/dev/shm", own) == 0);
  if (rank == 0) puts("lives: ok");
  MPI_Finalize();
  return 0;
}
