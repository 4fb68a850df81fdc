// Ranks with two versions of Penstock in one job are told, all of them, when the first communicator is made.
#include <string>

#include "check.hpp"
#include "mpi/ranks.hpp"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  using penstock::mpi::find_ranks;
  using penstock::mpi::kVersion;
  const int size = world_size();
  CHECK(find_ranks(MPI_COMM_WORLD, MPI_THREAD_SINGLE).node_of_rank.size() == static_cast<std::size_t>(size));
  penstock::mpi::Version newer = kVersion;
  ++newer.minor;
  const int last = size - 1;
  if (size > 1) {
    try {
      find_ranks(MPI_COMM_WORLD, MPI_THREAD_SINGLE, nullptr, world_rank() == last ? newer : kVersion);
      CHECK(!"found");
    } catch (const penstock::Error& error) {
      CHECK(error.code() == penstock::ErrorCode::mismatch);
      CHECK(error.rank() == last);
      CHECK(std::string(error.what()).find("install one version for all ranks") != std::string::npos);
    }
  }
  MPI_Finalize();
}
