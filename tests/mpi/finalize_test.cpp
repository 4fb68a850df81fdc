// MPI_Finalize frees open communicators in the order of their creation, which is the same on all ranks.
#include <optional>
#include <vector>

#include "check.hpp"
#include "penstock/export.hpp"
#include "penstock/mpi.hpp"

namespace {

std::vector<MPI_Comm>& made() {
  static std::vector<MPI_Comm> all;
  return all;
}
std::vector<MPI_Comm>& freed_at_the_end() {
  static std::vector<MPI_Comm> all;
  return all;
}
bool is_ending = false;

}  // namespace

// Intercepts calls of the library, as MPI's profiling interface allows.
extern "C" PENSTOCK_API int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* duplicate) {
  const int result = PMPI_Comm_dup(comm, duplicate);
  if (result == MPI_SUCCESS) made().push_back(*duplicate);
  return result;
}

extern "C" PENSTOCK_API int MPI_Comm_free(MPI_Comm* comm) {
  if (is_ending)
    freed_at_the_end().push_back(*comm);
  else
    std::erase(made(), *comm);
  return PMPI_Comm_free(comm);
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  // Later communicators reuse the memory of earlier ones, so addresses do not have the order of creation.
  std::vector<std::optional<penstock::Comm>> comms(12);
  for (std::size_t i = 0; i < 6; ++i) comms[i].emplace(penstock::make_comm(MPI_COMM_WORLD, {.progress_cores = 0}));
  for (std::size_t i = 0; i < 4; ++i) comms[i].reset();
  for (std::size_t i = 6; i < comms.size(); ++i)
    comms[i].emplace(penstock::make_comm(MPI_COMM_WORLD, {.progress_cores = 0}));
  CHECK(made().size() >= comms.size() - 4);
  is_ending = true;
  MPI_Finalize();
  if (freed_at_the_end() == made()) return 0;
  std::fprintf(stderr, "%zu communicators were freed in another order than %zu were made\n", freed_at_the_end().size(),
               made().size());
  return 1;
}
