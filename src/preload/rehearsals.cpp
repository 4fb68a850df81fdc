#include "preload/rehearsals.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "preload/clock.hpp"
#include "preload/contests.hpp"
#include "preload/own_calls.hpp"
#include "preload/requests.hpp"
#include "preload/types.hpp"

namespace penstock::preload {
namespace {

constexpr std::uint64_t kMostInFlight = 16;
/// In a block, of short messages; of long ones fewer.
constexpr std::uint64_t kMostCalls = 128;
constexpr std::uint64_t kBytesOfCalls = std::uint64_t{512} << 10U;
/// The first batch of a block finds the caches as the other server has left them, and does not count; longer ones do
/// not stay in caches.
constexpr std::uint64_t kMostCachedBytes = std::uint64_t{1} << 20U;
constexpr std::uint64_t kMostMemoryBytes = std::uint64_t{64} << 20U;
/// A rehearsal moves at most this much more than the program has moved by then.
constexpr std::uint64_t kMostAheadBytes = std::uint64_t{32} << 20U;
constexpr std::uint64_t kBlocksOfARehearsal = 2 * (1 + Trial::kRounds);

std::uint64_t uncounted_batches(std::uint64_t batch_bytes) { return batch_bytes <= kMostCachedBytes ? 1 : 0; }

/// How many blocks a rank sends or receives, at most.
std::uint64_t blocks_of(CollectiveKind kind, int ranks) {
  switch (kind) {
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
    case CollectiveKind::allgather:
    case CollectiveKind::alltoall:
    case CollectiveKind::reduce_scatter_block: return static_cast<std::uint64_t>(ranks);
    default: return 1;
  }
}

/// A batch of equal operations in flight at once, each with buffers of its own.
class Batch {
 public:
  Batch(Call like, std::uint64_t bytes, std::size_t operations, const Members& members)
      : like_(like),
        members_(members),
        block_bytes_(bytes * blocks_of(like.kind, members.ranks)),
        from_(block_bytes_ * operations),
        to_(block_bytes_ * operations),
        requests_(operations, MPI_REQUEST_NULL) {
    int size_bytes = 1;
    if (computes(like.kind)) PMPI_Type_size(like.receive.type, &size_bytes);
    type_ = computes(like.kind) ? like.receive.type : MPI_BYTE;
    count_ = static_cast<int>(bytes / static_cast<std::uint64_t>(size_bytes));
    counts_.assign(static_cast<std::size_t>(members.ranks), count_ / members.ranks);
    counts_.back() += count_ % members.ranks;
    displacements_.resize(counts_.size());
    std::exclusive_scan(counts_.begin(), counts_.end(), displacements_.begin(), 0);
  }

  void run(Server server, Comm& penstock) {
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (server == Server::mpi)
        start_native(i);
      else
        start(i, penstock);
    }
    PMPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
  }

 private:
  void start(std::size_t i, Comm& penstock) {
    Translated translated;
    Request started;
    {
      const OwnCall own;
      translate(call(i), members_, translated);
      started = penstock.start(translated.collective, translated.input, translated.output);
    }
    make_request(std::move(started), &requests_[i]);
  }

  Call call(std::size_t i) {
    Call made = like_;
    void* const from = from_.data() + i * block_bytes_;
    void* const to = to_.data() + i * block_bytes_;
    made.send = side(from, count_, type_);
    made.receive = side(to, count_, type_);
    if (made.kind == CollectiveKind::allgatherv) {
      made.send.count = own_count();
      made.receive = side(to, counts_.data(), displacements_.data(), type_);
    } else if (made.kind == CollectiveKind::reduce_scatter) {
      made.receive = side(to, counts_.data(), static_cast<const int*>(nullptr), type_);
    }
    return made;
  }

  void start_native(std::size_t i) {
    void* const from = from_.data() + i * block_bytes_;
    void* const to = to_.data() + i * block_bytes_;
    const MPI_Comm comm = like_.comm;
    const MPI_Op op = like_.op;
    const int root = like_.root;
    MPI_Request* const request = &requests_[i];
    switch (like_.kind) {
      case CollectiveKind::barrier: PMPI_Ibarrier(comm, request); break;
      case CollectiveKind::bcast: PMPI_Ibcast(to, count_, type_, root, comm, request); break;
      case CollectiveKind::reduce: PMPI_Ireduce(from, to, count_, type_, op, root, comm, request); break;
      case CollectiveKind::allreduce: PMPI_Iallreduce(from, to, count_, type_, op, comm, request); break;
      case CollectiveKind::scan: PMPI_Iscan(from, to, count_, type_, op, comm, request); break;
      case CollectiveKind::exscan: PMPI_Iexscan(from, to, count_, type_, op, comm, request); break;
      case CollectiveKind::reduce_scatter_block:
        PMPI_Ireduce_scatter_block(from, to, count_, type_, op, comm, request);
        break;
      case CollectiveKind::reduce_scatter:
        PMPI_Ireduce_scatter(from, to, counts_.data(), type_, op, comm, request);
        break;
      case CollectiveKind::gather: PMPI_Igather(from, count_, type_, to, count_, type_, root, comm, request); break;
      case CollectiveKind::scatter: PMPI_Iscatter(from, count_, type_, to, count_, type_, root, comm, request); break;
      case CollectiveKind::allgather: PMPI_Iallgather(from, count_, type_, to, count_, type_, comm, request); break;
      case CollectiveKind::allgatherv:
        PMPI_Iallgatherv(from, own_count(), type_, to, counts_.data(), displacements_.data(), type_, comm, request);
        break;
      default: PMPI_Ialltoall(from, count_, type_, to, count_, type_, comm, request);
    }
  }

  int own_count() const { return counts_[static_cast<std::size_t>(members_.rank)]; }

  Call like_;
  Members members_;
  std::uint64_t block_bytes_;
  std::vector<std::byte> from_;
  std::vector<std::byte> to_;
  std::vector<MPI_Request> requests_;
  MPI_Datatype type_ = MPI_BYTE;
  int count_ = 0;
  std::vector<int> counts_{};
  std::vector<int> displacements_{};
};

/// What this rank takes for batches that all ranks begin together: where they follow each other, ranks run ahead in
/// one, and what they save comes back in the next as waiting. The program computes between its calls.
double ticks_of(Batch& batch, Server server, Comm& penstock, std::uint64_t batches, std::uint64_t uncounted) {
  Collective barrier;
  barrier.kind = CollectiveKind::barrier;
  double sum = 0;
  for (std::uint64_t i = 0; i < uncounted + batches; ++i) {
    {
      const OwnCall own;
      penstock.run(barrier, {}, {});
    }
    const std::uint64_t begin = ticks();
    batch.run(server, penstock);
    const std::uint64_t end = ticks();  // counters of two cores may differ
    if (i >= uncounted && end > begin) sum += static_cast<double>(end - begin);
  }
  return sum;
}

/// The greatest of the ranks. Collective.
std::uint64_t greatest(std::uint64_t number, Comm& penstock) {
  std::vector<Times> greatest_times{{.penstock = static_cast<double>(number)}};
  combine_over_ranks(penstock, ReduceOp::max, greatest_times);
  return static_cast<std::uint64_t>(greatest_times.front().penstock);
}

}  // namespace

bool Rehearsals::Part::rests() noexcept {
  if (!trial.has_chosen() || !trial.rests()) return false;
  if (trial.choice() == Server::penstock) in_flight = std::max<std::uint64_t>(in_flight, preload::in_flight() + 1);
  return true;
}

Rehearsals::Part* Rehearsals::of(const Call& call, const Members& members) {
  const std::optional<std::uint64_t> bytes = agreed_bytes(call, members);
  if (!bytes || *bytes > static_cast<std::uint64_t>(std::numeric_limits<int>::max()) || !is_exact(call, members.ranks))
    return nullptr;
  Part& part = parts_.of(call.kind, *bytes);
  if (!part.trial.has_chosen()) ++part.calls;
  if (part.trial.choice() == Server::penstock)
    part.in_flight = std::max<std::uint64_t>(part.in_flight, preload::in_flight() + 1);
  if (part.trial.rests()) return &part;
  const bool is_small =
      part.trial.has_chosen() ||
      (kBlocksOfARehearsal * (1 + uncounted_batches(*bytes)) * *bytes <= kMostAheadBytes + part.calls * *bytes &&
       2 * *bytes * blocks_of(call.kind, members.ranks) <= kMostMemoryBytes);
  if (is_small) {
    part.trial.hold();
    due_.push_back({&part, call, *bytes});
  }
  return &part;
}

void Rehearsals::run(Comm& penstock, const Members& members) {
  for (const Due& each : std::exchange(due_, {})) rehearse(each, penstock, members);
}

void Rehearsals::rehearse(const Due& due, Comm& penstock, const Members& members) {
  Trial& trial = due.part->trial;
  const std::uint64_t bytes = std::max<std::uint64_t>(due.bytes, 1);
  const std::uint64_t fit = kMostMemoryBytes / (2 * bytes * blocks_of(due.like.kind, members.ranks));
  const std::uint64_t calls = std::min(kBytesOfCalls / bytes, kMostCalls);
  const std::uint64_t at_once = std::min({greatest(due.part->in_flight, penstock), kMostInFlight, calls, fit});
  const std::uint64_t in_flight = std::max<std::uint64_t>(at_once, 1);
  const std::uint64_t batches = std::max<std::uint64_t>(calls / in_flight, 1);
  const std::uint64_t uncounted = uncounted_batches(in_flight * bytes);
  trial.set_block_calls(in_flight * (batches + uncounted));
  Batch batch(due.like, due.bytes, in_flight, members);
  do {
    Times times;
    const bool mpi_first = trial.begins_with_mpi();
    if (mpi_first) times.mpi = ticks_of(batch, Server::mpi, penstock, batches, uncounted);
    times.penstock = ticks_of(batch, Server::penstock, penstock, batches, uncounted);
    if (!mpi_first) times.mpi = ticks_of(batch, Server::mpi, penstock, batches, uncounted);
    // Of the slowest rank: one that is done early computes, and later waits for it.
    std::vector<Times> longest{times};
    combine_over_ranks(penstock, ReduceOp::max, longest);
    trial.judge(longest.front());
  } while (!trial.has_chosen());
}

}  // namespace penstock::preload
