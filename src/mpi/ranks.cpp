#include "mpi/ranks.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>

#include "host/node_names.hpp"
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

/// What a rank tells the others. The first exchange of all versions of Penstock begins with it, so each understands
/// the others' version.
struct Facts {
  std::uint64_t node;
  std::uint16_t thread_level;
  std::uint16_t has_failed;
  std::uint32_t version;
};
static_assert(sizeof(Facts) == 2 * sizeof(std::uint64_t));

/// Of so many ranks the facts are gathered on the stack: a rank without memory can tell so in the same exchange.
constexpr std::size_t kFewRanks = 256;

struct Memory {
  void take(std::size_t count) {
    if (count > kFewRanks) facts.resize(count);
    names.resize(count);
    order.resize(count);
    found.node_of_rank.resize(count);
  }

  std::vector<Facts> facts;
  std::vector<std::uint64_t> names;
  std::vector<std::int32_t> order;
  Ranks found;
};

void require_one_version(std::span<const Facts> facts) {
  const auto other = std::ranges::find_if(facts, [&](const Facts& each) { return each.version != facts[0].version; });
  if (other == facts.end()) return;
  const auto rank = static_cast<int>(other - facts.begin());
  throw Error(ErrorCode::mismatch,
              "rank " + std::to_string(rank) + " has Penstock " + text_of(other->version) + ", and rank 0 has " +
                  text_of(facts[0].version) + "; install one version for all ranks",
              rank);
}

[[noreturn]] void throw_failed_elsewhere(int rank) {
  throw Error(
      ErrorCode::peer_failed,
      "rank " + std::to_string(rank) + " could not begin to make a communicator; the error on that rank says why",
      rank);
}

}  // namespace

const Version kVersion{PENSTOCK_VERSION};

Ranks find_ranks(MPI_Comm comm, int thread_level, const std::exception_ptr& failure, const Version& version) {
  int size = 1;
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  const auto ranks = static_cast<std::size_t>(size);
  Memory memory;
  std::uint64_t node = 0;
  std::exception_ptr own_failure = failure;
  try {
    memory.take(ranks);
    node = host::node_of_process();
  } catch (const std::exception&) {
    if (own_failure == nullptr) own_failure = std::current_exception();
  }
  std::array<Facts, kFewRanks> few{};
  const bool are_few = ranks <= few.size();
  if (!are_few) require_all(comm, own_failure);
  const std::span<Facts> facts = are_few ? std::span(few).first(ranks) : std::span(memory.facts);

  const Facts mine{.node = node,
                   .thread_level = static_cast<std::uint16_t>(thread_level),
                   .has_failed = static_cast<std::uint16_t>(own_failure != nullptr ? 1 : 0),
                   .version = packed(version)};
  check(MPI_Allgather(&mine, 2, MPI_UINT64_T, facts.data(), 2, MPI_UINT64_T, comm), "MPI_Allgather");
  require_one_version(facts);
  if (own_failure != nullptr) std::rethrow_exception(own_failure);
  const auto failed = std::ranges::find_if(facts, [](const Facts& each) { return each.has_failed != 0; });
  if (failed != facts.end()) throw_failed_elsewhere(static_cast<int>(failed - facts.begin()));
  Ranks& found = memory.found;
  found.any_thread =
      std::ranges::all_of(facts, [](const Facts& each) { return each.thread_level == MPI_THREAD_MULTIPLE; });
  std::ranges::transform(facts, memory.names.begin(), [](const Facts& each) { return each.node; });
  host::number_nodes(memory.names, memory.order, found.node_of_rank);
  return std::move(found);
}

void require_all(MPI_Comm comm, const std::exception_ptr& failure) {
  int rank = 0;
  int size = 1;
  check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  int ranks_from_first = failure != nullptr ? size - rank : 0;
  check(MPI_Allreduce(MPI_IN_PLACE, &ranks_from_first, 1, MPI_INT, MPI_MAX, comm), "MPI_Allreduce");
  if (failure != nullptr) std::rethrow_exception(failure);
  if (ranks_from_first > 0) throw_failed_elsewhere(size - ranks_from_first);
}

}  // namespace penstock::mpi
