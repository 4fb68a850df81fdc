// Entry point for code that has neither mpi.h nor this library's ABI: a cached communicator for a group of ranks.
#include <memory>
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

/// MPI communicators with the same ranks in the same order share one communicator, so a program can make a new MPI
/// communicator for each call. Making it is collective, so all ranks of a group have it or none. An attribute of the
/// MPI communicator caches the result of the search.
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
    MPI_Group group = MPI_GROUP_NULL;
    check(MPI_Comm_group(comm, &group), "MPI_Comm_group");
    Comm* kept = find(group);
    if (kept == nullptr) {
      // Blocking calls need no progress threads.
      comms_.push_back({group, std::make_unique<Comm>(make_comm(comm, {.progress_cores = 0}))});
      kept = comms_.back().comm.get();
    } else {
      MPI_Group_free(&group);
    }
    check(MPI_Comm_set_attr(comm, key_, kept), "MPI_Comm_set_attr");
    return kept;
  }

 private:
  struct Known {
    MPI_Group group;
    std::unique_ptr<Comm> comm;
  };

  /// Does not use ranks of MPI_COMM_WORLD: spawned processes are not in it.
  Comm* find(MPI_Group group) const {
    for (const Known& known : comms_) {
      int relation = MPI_UNEQUAL;
      check(MPI_Group_compare(group, known.group, &relation), "MPI_Group_compare");
      if (relation == MPI_IDENT) return known.comm.get();
    }
    return nullptr;
  }

  int key_ = MPI_KEYVAL_INVALID;
  std::vector<Known> comms_;
  AtFinalize at_finalize_;
};

}  // namespace
}  // namespace penstock::mpi

/// The communicator for the ranks of an MPI communicator, given as a Fortran handle. The first call makes it and is
/// collective; it lives until MPI_Finalize. For blocking calls, one thread at a time. Only its name has C linkage: it
/// throws what make_comm throws. src/scalapack calls it.
extern "C" PENSTOCK_API penstock::Comm* penstock_kept_comm(int fortran_comm) {
  penstock::mpi::require_running();
  static auto* const kept = new penstock::mpi::Kept;  // never destroyed: MPI_Finalize may run in an exit handler
  return kept->of(penstock::mpi::from_integer(fortran_comm));
}
