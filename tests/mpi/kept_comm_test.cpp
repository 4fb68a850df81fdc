// The cache of communicators finds a communicator by its group of ranks, even if the ranks belong to several jobs.
#include <cstdint>
#include <cstring>
#include <span>

#include "check.hpp"
#include "penstock/comm.hpp"

extern "C" penstock::Comm* penstock_kept_comm(int fortran_comm);

namespace {

penstock::Comm* kept(MPI_Comm comm) {
#ifdef MPI_ABI_VERSION
  return penstock_kept_comm(MPI_Comm_toint(comm));
#else
  return penstock_kept_comm(MPI_Comm_c2f(comm));
#endif
}

std::int32_t sum_of_ones(penstock::Comm& comm) {
  const std::int32_t one = 1;
  std::int32_t sum = 0;
  comm.run({.kind = penstock::CollectiveKind::allreduce, .count = 1, .dtype = penstock::DType::int32},
           std::as_bytes(std::span(&one, 1)), std::as_writable_bytes(std::span(&sum, 1)));
  return sum;
}

/// Both sides of MPI_Comm_spawn call it. Returns a communicator of all processes.
MPI_Comm merged(MPI_Comm parents_and_children, bool is_child) {
  MPI_Comm all = MPI_COMM_NULL;
  MPI_Intercomm_merge(parents_and_children, is_child ? 1 : 0, &all);
  penstock::Comm* const of_all = kept(all);
  int size = 0;
  MPI_Comm_size(all, &size);
  CHECK(of_all->size() == size);
  CHECK(sum_of_ones(*of_all) == size);
  return all;
}

void found_by_group() {
  MPI_Comm again = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &again);
  CHECK(kept(again) == kept(MPI_COMM_WORLD));
  CHECK(kept(again)->size() == world_size());
  MPI_Comm reversed = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank(), &reversed);
  CHECK((kept(reversed) == kept(again)) == (world_size() == 1));
  CHECK(sum_of_ones(*kept(reversed)) == world_size());
  MPI_Comm_free(&reversed);
  MPI_Comm_free(&again);
}

/// Makes two groups of these ranks, each with one process outside of their MPI_COMM_WORLD.
[[maybe_unused]] void spawned_groups(char* program) {
  MPI_Comm all[2];
  for (MPI_Comm& comm : all) {
    MPI_Comm children = MPI_COMM_NULL;
    char* arguments[] = {const_cast<char*>("child"), nullptr};
    MPI_Comm_spawn(program, arguments, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
    comm = merged(children, false);
    MPI_Comm_disconnect(&children);
  }
  CHECK(kept(all[0]) != kept(all[1]));
}

}  // namespace

int main(int argc, char** argv) {
  begin(&argc, &argv);
  if (argc > 1 && std::strcmp(argv[1], "child") == 0) {
    MPI_Comm parents = MPI_COMM_NULL;
    MPI_Comm_get_parent(&parents);
    merged(parents, true);
    MPI_Comm_disconnect(&parents);
  } else {
    found_by_group();
#ifndef OPEN_MPI  // Open MPI 5.0 crashes in MPI_Finalize after spawn and merge
    spawned_groups(argv[0]);
#endif
  }
  MPI_Finalize();
  return 0;
}
