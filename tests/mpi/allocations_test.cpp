// Each allocation of making a communicator fails in turn on one rank. All ranks make it or none does, no rank waits for
// another, and MPI_Finalize returns. Giving a communicator up needs no memory.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "check.hpp"
#include "penstock/mpi.hpp"
#include "penstock/options.hpp"
#include "takes_all.hpp"

namespace {

/// The number of this thread's allocations before one fails. If negative, none fails.
thread_local int allocations_left = -1;

}  // namespace

void* operator new(std::size_t bytes) {
  if (allocations_left >= 0 && --allocations_left < 0) throw std::bad_alloc();
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
// AddressSanitizer has a nothrow form of its own, whose memory the operator delete above must not get.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept try {
  return operator new(bytes);
} catch (const std::bad_alloc&) {
  return nullptr;
}

namespace {

/// One of `step`, from `first` on.
void fail_each(MPI_Comm parent, int victim, int first, int step) {
  constexpr int kMost = 20'000;
  int is_reached = 1;
  int allocation = first;
  for (; is_reached != 0 && allocation < kMost; allocation += step) {
    std::optional<penstock::Comm> comm;
    if (world_rank() == victim) allocations_left = allocation;
    try {
      comm.emplace(penstock::make_comm(parent, {.progress_cores = 0}));
    } catch (const std::bad_alloc&) {
      CHECK(world_rank() == victim);
    } catch (const penstock::Error& error) {
      // By the victim, or by another rank that it has failed.
      const bool is_due = world_rank() == victim || error.code() == penstock::ErrorCode::peer_failed;
      if (!is_due) std::fprintf(stderr, "allocation %d: %s\n", allocation, error.what());
      CHECK(is_due);
    }
    is_reached = world_rank() == victim && std::exchange(allocations_left, -1) < 0 ? 1 : 0;
    const int is_made = comm ? 1 : 0;
    int made = 0;
    MPI_Allreduce(&is_made, &made, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(made == 0 || made == world_size());
    if (comm) comm->run({.kind = penstock::CollectiveKind::barrier}, {}, {});
    MPI_Bcast(&is_reached, 1, MPI_INT, victim, MPI_COMM_WORLD);
  }
  CHECK(allocation > 20 && allocation < kMost);
}

/// `ends`: what gives up a communicator that the rank has made.
void fail_each_of_ending(MPI_Comm parent, int victim, const std::function<void(std::optional<penstock::Comm>&)>& ends) {
  int is_reached = 1;
  for (int allocation = 0; is_reached != 0; ++allocation) {
    std::optional<penstock::Comm> comm = penstock::make_comm(parent, {.progress_cores = 0});
    comm->run({.kind = penstock::CollectiveKind::barrier}, {}, {});
    if (world_rank() == victim) allocations_left = allocation;
    ends(comm);
    is_reached = world_rank() == victim && std::exchange(allocations_left, -1) < 0 ? 1 : 0;
    MPI_Bcast(&is_reached, 1, MPI_INT, victim, MPI_COMM_WORLD);
  }
}

/// The ranks in a circle.
MPI_Comm circle() {
  const int rank = world_rank();
  const int size = world_size();
  const std::vector<int> sources{(rank + size - 1) % size};
  const std::vector<int> destinations{(rank + 1) % size};
  MPI_Comm made = MPI_COMM_NULL;
  MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, sources.data(), MPI_UNWEIGHTED, 1, destinations.data(),
                                 MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &made);
  return made;
}

}  // namespace

int main(int argc, char** argv) {
  // Without shared memory each rank is a node of its own: then the ranks owe each other more at the end.
  ::setenv("PENSTOCK_SHARED_MEMORY", "off", 1);
  begin(&argc, &argv);
  MPI_Comm graph = circle();
  {
    const penstock::Comm first = penstock::make_comm(MPI_COMM_WORLD, {.progress_cores = 0});  // what lasts is allocated
    // Ranks that have failed may answer others for a second, and where the machine is measured each try may do so
    // again.
    const bool is_all = penstock::takes_all();
    const int step_of_measured = is_all ? 5 : 150;
    int offset = 0;
    for (const int victim : {0, world_size() - 1}) {
      fail_each_of_ending(MPI_COMM_WORLD, victim, [](std::optional<penstock::Comm>& comm) { comm.reset(); });
      for (MPI_Comm parent : {MPI_COMM_WORLD, graph}) {
        penstock::options().network = "off";
        fail_each(parent, victim, 0, is_all ? 1 : std::max(1, world_size() - 2));
        penstock::options().network = "measured";
        fail_each(parent, victim, offset, step_of_measured);
        offset += step_of_measured / 4;
      }
    }
  }
  MPI_Comm_free(&graph);
  MPI_Finalize();
  return 0;
}
