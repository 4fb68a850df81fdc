/* Transposes a matrix from block-cyclic rows to block-cyclic columns, in C: mpiexec -n 4 ./redistribute */
#include <mpi.h>
#include <penstock/penstock_mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                   \
  do {                                                \
    if ((call) < 0) {                                 \
      fprintf(stderr, "%s\n", penstock_last_error()); \
      MPI_Abort(MPI_COMM_WORLD, 1);                   \
    }                                                 \
  } while (0)

int main(int argc, char** argv) {
  int level;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  penstock_comm* comm = NULL;
  CHECK(penstock_comm_create(MPI_COMM_WORLD, -1, &comm));
  const int64_t ranks = penstock_comm_size(comm);

  const int64_t shape[] = {512, 256}, transposed[] = {256, 512}, blocks[] = {32, 32}, larger[] = {64, 64};
  const int64_t rows[] = {ranks, 1}, columns[] = {1, ranks};
  penstock_layout *source = NULL, *target = NULL;
  CHECK(penstock_layout_block_cyclic(2, shape, blocks, rows, 0, 0, &source));
  CHECK(penstock_layout_block_cyclic(2, transposed, larger, columns, 0, 0, &target));

  penstock_redistribution* plan = NULL;
  uint64_t before, after;
  int64_t input_elems, output_elems;
  CHECK(penstock_redistribution_create(comm, source, target, PENSTOCK_float64, 'T', 1, &plan));
  CHECK(penstock_redistribution_info(plan, &before, &after, &input_elems, &output_elems));
  double* a = malloc((size_t)input_elems * sizeof *a + 1);
  double* b = malloc((size_t)output_elems * sizeof *b + 1);
  for (int64_t i = 0; i < input_elems; ++i) a[i] = 1.0;
  CHECK(penstock_redistribute(plan, a, b, 2.0, 0.0));

  int wrong = 0;
  for (int64_t i = 0; i < output_elems; ++i) wrong += b[i] != 2.0;
  if (penstock_comm_rank(comm) == 0) {
    printf("bytes between ranks: %llu, with the ranks of the target relabeled: %llu\n", (unsigned long long)before,
           (unsigned long long)after);
  }
  free(a);
  free(b);
  penstock_redistribution_free(plan);
  penstock_layout_free(target);
  penstock_layout_free(source);
  penstock_comm_free(comm);
  MPI_Finalize();
  return wrong != 0;
}
