/* A communicator of a session, in a program that never calls MPI_Init, or, with an argument, that does. */
#include "check.h"

int main(int argc, char** argv) {
  const int has_world = argc > 1;
  if (has_world) begin(&argc, &argv);
  MPI_Session session;
  MPI_Group group;
  MPI_Comm comm;
  MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session);
  MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
  MPI_Comm_create_from_group(group, "penstock", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  for (int repetition = 0; repetition < 40; ++repetition) {
    int sum = rank + repetition;
    MPI_Barrier(comm);
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, comm);
    if (sum != ranks * (ranks - 1) / 2 + ranks * repetition) {
      fprintf(stderr, "rank %d: sum %d\n", rank, sum);
      abort();
    }
  }
  MPI_Group_free(&group);
  MPI_Comm_free(&comm);
  if (rank == 0) puts("sessions: ok");
  MPI_Session_finalize(&session);
  if (has_world) MPI_Finalize();
  return 0;
}
