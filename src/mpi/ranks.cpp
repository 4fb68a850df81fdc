#include "mpi/ranks.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/node_names.hpp"
#include "mpi/check.hpp"
#include "penstock/error.hpp"

namespace penstock::mpi {

namespace {

constexpr std::uint32_t kPartBits = 10;
constexpr std::uint32_t kPartMask = (1u << kPartBits) - 1;

std::uint32_t packed(const Version& version) {
  return version.major << 2 * kPartBits | version.minor << kPartBits | version.patch;
}

std::string text_of(std::uint32_t version) {
  return std::to_string(version >> 2 * kPartBits) + "." + std::to_string(version >> kPartBits & kPartMask) + "." +
         std::to_string(version & kPartMask);
}

}  // namespace

const Version kVersion{PENSTOCK_VERSION};

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

RankFinder::RankFinder(int size)
    : facts_(static_cast<std::size_t>(size)), names_(facts_.size()), order_(facts_.size()) {
  static_cast<void>(engine::node_of_process());
  ranks_.node_of_rank.resize(facts_.size());
}

void RankFinder::require_one_version() const {
  const auto other =
      std::ranges::find_if(facts_, [this](const Facts& each) { return each.version != facts_[0].version; });
  if (other == facts_.end()) return;
  const auto rank = static_cast<int>(other - facts_.begin());
  throw Error(ErrorCode::mismatch,
              "rank " + std::to_string(rank) + " has Penstock " + text_of(other->version) + ", and rank 0 has " +
                  text_of(facts_[0].version) + "; install one version for all ranks",
              rank);
}

Ranks RankFinder::find(MPI_Comm comm, int thread_level, const Version& version) {
  static_assert(sizeof(Facts) == 2 * sizeof(std::uint64_t));
  const Facts mine{engine::node_of_process(), static_cast<std::uint32_t>(thread_level), packed(version)};
  check(MPI_Allgather(&mine, 2, MPI_UINT64_T, facts_.data(), 2, MPI_UINT64_T, comm), "MPI_Allgather");
  require_one_version();
  ranks_.any_thread =
      std::ranges::all_of(facts_, [](const Facts& each) { return each.thread_level == MPI_THREAD_MULTIPLE; });
  std::ranges::transform(facts_, names_.begin(), [](const Facts& each) { return each.node; });
  engine::number_nodes(names_, order_, ranks_.node_of_rank);
  return std::move(ranks_);
}

}  // namespace penstock::mpi
