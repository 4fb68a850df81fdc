/* A tool of MPI's profiling interface that spoils what MPI returns: results of MARKED_COUNT items on rank 1. Sums of
 * floating-point numbers change by about 1e-9 of their size, other results by one bit. With another count, sums change
 * by one unit in the last place, as another order of the summands may. */
#include <math.h>

#include "../programs/check.h"
#include "wrong_results.h"

static int is_spoiled(MPI_Comm comm) {
  int me = 0;
  PMPI_Comm_rank(comm, &me);
  return me == 1;
}

static int spoil(int result, void* buffer, int count, MPI_Comm comm) {
  if (count == MARKED_COUNT && is_spoiled(comm)) *(unsigned char*)buffer ^= 1U;
  return result;
}

static int spoil_sum(int result, void* buffer, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  if (type != MPI_DOUBLE || op != MPI_SUM) return spoil(result, buffer, count, comm);
  if (is_spoiled(comm)) {
    double* const number = buffer;
    *number = count == MARKED_COUNT ? *number * (1 + 1e-9) : nextafter(*number, 1e300);
  }
  return result;
}

int MPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  return spoil(PMPI_Bcast(buffer, count, type, root, comm), buffer, count, comm);
}

int MPI_Reduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
  return spoil_sum(PMPI_Reduce(from, to, count, type, op, root, comm), to, count, type, op, comm);
}

int MPI_Allreduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return spoil_sum(PMPI_Allreduce(from, to, count, type, op, comm), to, count, type, op, comm);
}

int MPI_Reduce_scatter_block(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return spoil_sum(PMPI_Reduce_scatter_block(from, to, count, type, op, comm), to, count, type, op, comm);
}

int MPI_Reduce_scatter(const void* from, void* to, const int counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return spoil_sum(PMPI_Reduce_scatter(from, to, counts, type, op, comm), to, counts[1], type, op, comm);
}

int MPI_Scan(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return spoil_sum(PMPI_Scan(from, to, count, type, op, comm), to, count, type, op, comm);
}

int MPI_Exscan(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return spoil_sum(PMPI_Exscan(from, to, count, type, op, comm), to, count, type, op, comm);
}

int MPI_Gather(const void* from, int sent, MPI_Datatype sent_type, void* to, int count, MPI_Datatype type, int root,
               MPI_Comm comm) {
  return spoil(PMPI_Gather(from, sent, sent_type, to, count, type, root, comm), to, count, comm);
}

int MPI_Scatter(const void* from, int sent, MPI_Datatype sent_type, void* to, int count, MPI_Datatype type, int root,
                MPI_Comm comm) {
  return spoil(PMPI_Scatter(from, sent, sent_type, to, count, type, root, comm), to, count, comm);
}

int MPI_Allgather(const void* from, int sent, MPI_Datatype sent_type, void* to, int count, MPI_Datatype type,
                  MPI_Comm comm) {
  return spoil(PMPI_Allgather(from, sent, sent_type, to, count, type, comm), to, count, comm);
}

int MPI_Alltoall(const void* from, int sent, MPI_Datatype sent_type, void* to, int count, MPI_Datatype type,
                 MPI_Comm comm) {
  return spoil(PMPI_Alltoall(from, sent, sent_type, to, count, type, comm), to, count, comm);
}

int MPI_Alltoallv(const void* from, const int sent[], const int sent_at[], MPI_Datatype sent_type, void* to,
                  const int counts[], const int at[], MPI_Datatype type, MPI_Comm comm) {
  return spoil(PMPI_Alltoallv(from, sent, sent_at, sent_type, to, counts, at, type, comm), to, counts[0], comm);
}
