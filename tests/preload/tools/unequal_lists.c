/* MPI's non-blocking operations with lists of counts are slow, or if LISTS_MOVE_NOTHING is set take no time, for they
 * move nothing. By the names of the profiling interface, since rehearsals are no calls of the program, which tools see.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

#include "../programs/check.h"

static int moves_nothing(MPI_Request* request) {
  static int known = -1;
  if (known < 0) known = getenv("LISTS_MOVE_NOTHING") != NULL;
  *request = MPI_REQUEST_NULL;
  if (!known) usleep(5000);
  return known;
}

#define UNEQUAL(name, parameters, arguments)                                          \
  int PMPI_##name parameters {                                                        \
    if (moves_nothing(request)) return MPI_SUCCESS;                                   \
    int(*const next) parameters = (int(*) parameters)dlsym(RTLD_NEXT, "PMPI_" #name); \
    return next arguments;                                                            \
  }                                                                                   \
  int MPI_##name parameters { return PMPI_##name arguments; }

UNEQUAL(Igatherv,
        (const void* from, int sent, MPI_Datatype sent_type, void* to, const int counts[], const int at[],
         MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request),
        (from, sent, sent_type, to, counts, at, type, root, comm, request))
UNEQUAL(Iscatterv,
        (const void* from, const int counts[], const int at[], MPI_Datatype sent_type, void* to, int count,
         MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request),
        (from, counts, at, sent_type, to, count, type, root, comm, request))
UNEQUAL(Ialltoallv,
        (const void* from, const int sent[], const int sent_at[], MPI_Datatype sent_type, void* to, const int counts[],
         const int at[], MPI_Datatype type, MPI_Comm comm, MPI_Request* request),
        (from, sent, sent_at, sent_type, to, counts, at, type, comm, request))
UNEQUAL(Ialltoallw,
        (const void* from, const int sent[], const int sent_at[], const MPI_Datatype sent_types[], void* to,
         const int counts[], const int at[], const MPI_Datatype types[], MPI_Comm comm, MPI_Request* request),
        (from, sent, sent_at, sent_types, to, counts, at, types, comm, request))
