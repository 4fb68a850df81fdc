// One rank has no descriptors left, or a few, when a communicator is made. All ranks make it or none does, and no rank
// waits for another. Without descriptors for shared memory the ranks do without it, but only then.
#include <fcntl.h>
#include <sys/resource.h>

#include <optional>
#include <string>

#include "check.hpp"
#include "penstock/mpi.hpp"

namespace {

/// While it lives, this process can open so many descriptors more.
class Descriptors {
 public:
  explicit Descriptors(rlim_t left) {
    CHECK(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const int lowest = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK(lowest >= 0);
    ::close(lowest);
    // New ones fill gaps between those that are open, too.
    rlim_t limit = static_cast<rlim_t>(lowest);
    for (rlim_t free = 0; free < left || is_open(limit); ++limit)
      if (!is_open(limit)) ++free;
    const rlimit few{limit, before_.rlim_max};
    CHECK(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  }
  ~Descriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

 private:
  static bool is_open(rlim_t descriptor) { return ::fcntl(static_cast<int>(descriptor), F_GETFD) >= 0; }

  rlimit before_{};
};

std::string make_with(rlim_t left, int victim) {
  std::optional<penstock::Comm> comm;
  {
    std::optional<Descriptors> few;
    if (world_rank() == victim) few.emplace(left);
    try {
      comm.emplace(penstock::make_comm(MPI_COMM_WORLD));
    } catch (const penstock::Error& error) {
      CHECK(error.code() == (world_rank() == victim ? penstock::ErrorCode::io : penstock::ErrorCode::peer_failed));
    }
  }
  const int is_made = comm ? 1 : 0;
  int made = 0;
  MPI_Allreduce(&is_made, &made, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  CHECK(made == 0 || made == world_size());
  if (!comm) return {};
  comm->run({.kind = penstock::CollectiveKind::barrier}, {}, {});
  return comm->report();
}

bool has(const std::string& report, const char* fact) {
  if (report.find(fact) != std::string::npos) return true;
  std::fprintf(stderr, "rank %d does not say '%s':\n%s", world_rank(), fact, report.c_str());
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  begin(&argc, &argv);
  const int last = world_size() - 1;
  CHECK(make_with(0, last).empty());
  if (last > 0) CHECK(has(make_with(1, last), "shared memory: given up on the node of rank "));
  for (const int victim : {last, 0})
    for (rlim_t left = 0; left < 8; ++left) make_with(left, victim);
  if (last > 0) CHECK(has(make_with(8, last), " ranks of this node, taken as needed"));
  MPI_Finalize();
  return 0;
}
