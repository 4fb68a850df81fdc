/* Collectives of no bytes, which MPI answers without a message: by a count of 0, and by a datatype of 0 bytes. */
#include "check.h"

int main(int argc, char** argv) {
  begin(&argc, &argv);
  const MPI_Comm comm = MPI_COMM_WORLD;
  MPI_Barrier(comm);
  MPI_Datatype nothing;
  MPI_Type_contiguous(0, MPI_INT, &nothing);
  MPI_Type_commit(&nothing);
  int from[16] = {rank}, to[16] = {-1};
  for (int has_type = 0; has_type < 2; ++has_type) {
    const MPI_Datatype type = has_type ? nothing : MPI_INT;
    MPI_Bcast(from, has_type, type, 0, comm);
    MPI_Gather(from, has_type, type, to, has_type, type, 0, comm);
    MPI_Scatter(from, has_type, type, rank == 0 ? MPI_IN_PLACE : to, has_type, type, 0, comm);
    MPI_Allgather(from, has_type, type, to, has_type, type, comm);
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, to, has_type, type, comm);
    MPI_Request request;
    MPI_Ibcast(from, has_type, type, 0, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  MPI_Allreduce(from, to, 0, MPI_INT, MPI_SUM, comm);
  MPI_Reduce(from, to, 0, MPI_INT, MPI_SUM, 0, comm);
  CHECK(from[0] == rank && to[0] == -1);
  MPI_Type_free(&nothing);
  MPI_Allreduce(&rank, to, 1, MPI_INT, MPI_MAX, comm);
  CHECK(to[0] == ranks - 1);
  if (rank == 0) puts("empty: ok");
  MPI_Finalize();
  return 0;
}
