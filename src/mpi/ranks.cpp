#include "mpi/ranks.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <numeric>
#include <string>
#include <utility>

#include "base/hash.hpp"
#include "engine/pid_namespace.hpp"
#include "mpi/check.hpp"
#include "penstock/error.hpp"

namespace penstock::mpi {
namespace {

std::uint64_t node_of_process() {
  static const std::uint64_t node = [] {
    std::string boot;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
    std::array<char, 256> host{};
    ::gethostname(host.data(), host.size() - 1);
    struct stat shared {};
    ::stat("/dev/shm", &shared);
    // Ranks find each other's shared memory in /proc, so they must see the same processes there. A namespace may have
    // several mounts of its own /proc.
    struct stat processes {};
    ::stat(engine::proc_has_own_numbers() ? "/proc/self/ns/pid" : "/proc", &processes);
    std::uint64_t hash = base::mix(base::kSeed, std::string_view(boot));
    hash = base::mix(hash, std::string_view(host.data()));
    hash = base::mix(hash, static_cast<std::uint64_t>(shared.st_dev));
    hash = base::mix(hash, static_cast<std::uint64_t>(processes.st_dev));
    return base::mix(hash, static_cast<std::uint64_t>(processes.st_ino));
  }();
  return node;
}

}  // namespace

void require_all(MPI_Comm comm, const std::exception_ptr& failure) {
  int rank = 0;
  int size = 1;
  check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  int ranks_from_first = failure != nullptr ? size - rank : 0;
  check(MPI_Allreduce(MPI_IN_PLACE, &ranks_from_first, 1, MPI_INT, MPI_MAX, comm), "MPI_Allreduce");
  if (failure != nullptr) std::rethrow_exception(failure);
  if (ranks_from_first > 0)
    throw Error(ErrorCode::peer_failed,
                "rank " + std::to_string(size - ranks_from_first) +
                    " could not begin to make a communicator; the error on that rank says why",
                size - ranks_from_first);
}

RankFinder::RankFinder(int size) : facts_(static_cast<std::size_t>(size)), order_(static_cast<std::size_t>(size)) {
  static_cast<void>(node_of_process());
  ranks_.node_of_rank.resize(static_cast<std::size_t>(size));
}

Ranks RankFinder::find(MPI_Comm comm, int thread_level) {
  const Facts mine{node_of_process(), static_cast<std::uint64_t>(thread_level)};
  check(MPI_Allgather(&mine, 2, MPI_UINT64_T, facts_.data(), 2, MPI_UINT64_T, comm), "MPI_Allgather");
  ranks_.any_thread =
      std::ranges::all_of(facts_, [](const Facts& each) { return each.thread_level == MPI_THREAD_MULTIPLE; });
  // By node, and within one by rank: its first rank stands for it.
  std::iota(order_.begin(), order_.end(), 0);
  const auto node_of = [&](std::int32_t rank) { return facts_[static_cast<std::size_t>(rank)].node; };
  std::ranges::sort(order_, {}, [&](std::int32_t rank) { return std::pair(node_of(rank), rank); });
  std::vector<std::int32_t>& numbers = ranks_.node_of_rank;
  for (std::size_t i = 0, first = 0; i < order_.size(); ++i) {
    if (node_of(order_[i]) != node_of(order_[first])) first = i;
    numbers[static_cast<std::size_t>(order_[i])] = order_[first];
  }
  // A first rank comes before the others of its node.
  std::int32_t next = 0;
  for (std::size_t rank = 0; rank < numbers.size(); ++rank) {
    const auto first = static_cast<std::size_t>(numbers[rank]);
    numbers[rank] = first == rank ? next++ : numbers[first];
  }
  return std::move(ranks_);
}

}  // namespace penstock::mpi
