// Batches with COSTA for `penstock bench redistribute`: COSTA's library of prefixed routines has no batches. Build it
// against COSTA's headers and library, with their MPI, and give its path in PENSTOCK_BENCH_COSTA_BATCH:
//   mpicxx -std=c++17 -O3 -fopenmp -shared -fPIC -I$COSTA/src costa_batch.cpp $COSTA_LIBRARY -o libcosta_batch.so
// COSTA's headers include MPI's.
#include <costa/grid2grid/transform.hpp>
#include <costa/layout.hpp>
#include <functional>
#include <vector>

/// targets[i] = op(sources[i]) for `count` square matrices on a process grid in row order. Collective.
extern "C" void penstock_bench_costa_batch(int count, char op, int order, const int* grid, double* const* sources,
                                           int source_block, int source_leading, double* const* targets,
                                           int target_block, int target_leading, MPI_Fint fortran_comm) {
  const MPI_Comm comm = MPI_Comm_f2c(fortran_comm);
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  std::vector<costa::grid_layout<double>> layouts;
  layouts.reserve(2 * static_cast<std::size_t>(count));
  std::vector<std::reference_wrapper<costa::grid_layout<double>>> from, to;
  const auto layout = [&](double* local, int block, int leading) {
    layouts.push_back(costa::block_cyclic_layout<double>(order, order, block, block, 1, 1, order, order, grid[0],
                                                         grid[1], 'R', 0, 0, local, leading, 'C', rank));
    return std::ref(layouts.back());
  };
  for (int i = 0; i < count; ++i) {
    from.push_back(layout(sources[i], source_block, source_leading));
    to.push_back(layout(targets[i], target_block, target_leading));
  }
  const std::vector<char> ops(from.size(), op);
  const std::vector<double> alphas(from.size(), 1.0), betas(from.size(), 0.0);
  costa::transform<double>(from, to, ops.data(), alphas.data(), betas.data(), comm);
}
