// How code that knows neither mpi.h nor this library's ABI comes to a communicator for ranks that it keeps meeting.
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "mpi/at_finalize.hpp"
#include "mpi/check.hpp"
#include "penstock/error.hpp"
#include "penstock/export.hpp"
#include "penstock/mpi.hpp"

namespace penstock::mpi {
namespace {

MPI_Comm from_integer(int handle) {
#ifdef MPI_ABI_VERSION
  return MPI_Comm_fromint(handle);
#else
  return MPI_Comm_f2c(handle);
#endif
}

/// The ranks of the group, as ranks of MPI_COMM_WORLD.
std::vector<int> world_ranks(MPI_Comm comm) {
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  int size = 0;
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  check(MPI_Comm_group(comm, &group), "MPI_Comm_group");
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::vector<int> in_world(ranks.size());
  for (int rank = 0; rank < size; ++rank) ranks[static_cast<std::size_t>(rank)] = rank;
  check(MPI_Group_translate_ranks(group, size, ranks.data(), world, in_world.data()), "MPI_Group_translate_ranks");
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  return in_world;
}

/// Communicators of the same ranks in the same order share one: whoever makes a new MPI communicator for each call
/// finds it again. All ranks of a group have it, or none, since making it is collective. An attribute of the MPI
/// communicator spares it the search.
class Kept {
 public:
  Kept() {
    check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &key_, nullptr),
          "MPI_Comm_create_keyval");
    at_finalize_ = AtFinalize([this] { comms_.clear(); });
  }

  Comm* of(MPI_Comm comm) {
    void* known = nullptr;
    int found = 0;
    check(MPI_Comm_get_attr(comm, key_, static_cast<void*>(&known), &found), "MPI_Comm_get_attr");
    if (found != 0) return static_cast<Comm*>(known);
    std::unique_ptr<Comm>& kept = comms_[world_ranks(comm)];
    // Blocking calls make their own progress.
    if (kept == nullptr) kept = std::make_unique<Comm>(make_comm(comm, {.progress_cores = 0}));
    check(MPI_Comm_set_attr(comm, key_, kept.get()), "MPI_Comm_set_attr");
    return kept.get();
  }

 private:
  int key_ = MPI_KEYVAL_INVALID;
  std::map<std::vector<int>, std::unique_ptr<Comm>> comms_;
  AtFinalize at_finalize_;
};

}  // namespace
}  // namespace penstock::mpi

/// The communicator of the ranks of an MPI communicator, which is given as Fortran knows it: made by the first call,
/// collectively, and kept until MPI_Finalize. For blocking calls, one thread at a time. C++ in all but its name: throws
/// what make_comm throws. src/scalapack calls it.
extern "C" PENSTOCK_API penstock::Comm* penstock_kept_comm(int fortran_comm) {
  penstock::mpi::require_running();
  static auto* const kept = new penstock::mpi::Kept;  // never destroyed: MPI_Finalize may run in an exit handler
  return kept->of(penstock::mpi::from_integer(fortran_comm));
}
