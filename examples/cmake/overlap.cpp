// Overlaps a computation with an allreduce: mpiexec -n 4 ./overlap
#include <mpi.h>
#include <penstock/error.hpp>
#include <penstock/mpi.hpp>

#include <cmath>
#include <cstddef>
#include <iostream>
#include <span>
#include <vector>

int main(int argc, char** argv) {
  int level;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  int status = 0;
  try {
    penstock::Comm comm = penstock::make_comm(MPI_COMM_WORLD);
    std::vector<float> gradient(1 << 20, 1.0f), total(gradient.size());
    penstock::Request request = comm.start(
        {.kind = penstock::CollectiveKind::allreduce, .count = gradient.size(), .dtype = penstock::DType::float32},
        std::as_bytes(std::span(gradient)), std::as_writable_bytes(std::span(total)));
    double sum = 0;
    for (int i = 1; i < 10'000'000; ++i) sum += 1.0 / (double(i) * i);  // runs during the allreduce
    request.wait();
    if (comm.rank() == 0) std::cout << "pi " << std::sqrt(6 * sum) << ", ranks " << total.back() << "\n";
    status = total.back() == static_cast<float>(comm.size()) ? 0 : 1;
  } catch (const penstock::Error& error) {
    std::cerr << error.what() << "\n";
    status = 1;
  }
  MPI_Finalize();
  return status;
}
