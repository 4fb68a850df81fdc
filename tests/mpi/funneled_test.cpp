// Drops the last reference to a communicator on a thread that may not call MPI.
#include <optional>
#include <thread>
#include <vector>

#include "check.hpp"
#include "penstock/comm.hpp"
#include "penstock/export.hpp"
#include "penstock/mpi.hpp"

namespace {

const std::thread::id main_thread = std::this_thread::get_id();
std::vector<MPI_Comm> open;

}  // namespace

// Intercepts calls of the library, as MPI's profiling interface allows.
extern "C" PENSTOCK_API int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* duplicate) {
  const int result = PMPI_Comm_dup(comm, duplicate);
  open.push_back(*duplicate);
  return result;
}

extern "C" PENSTOCK_API int MPI_Comm_free(MPI_Comm* comm) {
  CHECK(std::this_thread::get_id() == main_thread);
  std::erase(open, *comm);
  return PMPI_Comm_free(comm);
}

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  CHECK(level < MPI_THREAD_MULTIPLE);
  alarm(1500);
  for (const bool is_duplicate : {false, true}) {
    std::optional<penstock::Comm> comm = penstock::make_comm(MPI_COMM_WORLD, {.progress_cores = 0});
    if (is_duplicate) comm = comm->duplicate();
    CHECK(!comm->any_thread());
    comm->run({}, {}, {});
    const std::vector<MPI_Comm> before = open;
    std::thread([&] { comm.reset(); }).join();
    CHECK(open == before);
    const penstock::Comm next = penstock::make_comm(MPI_COMM_WORLD, {.progress_cores = 0});
    CHECK(open.size() == before.size());  // its own communicators; those above are freed
  }
  CHECK(open.empty());
  std::optional<penstock::Comm> last = penstock::make_comm(MPI_COMM_WORLD, {.progress_cores = 0});
  std::thread([&] { last.reset(); }).join();
  CHECK(!open.empty());
  MPI_Finalize();
  return open.empty() ? 0 : 1;
}
