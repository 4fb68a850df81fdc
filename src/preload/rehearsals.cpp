#include "preload/rehearsals.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "preload/clock.hpp"
#include "preload/contests.hpp"
#include "preload/own_calls.hpp"
#include "preload/requests.hpp"

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
/// The first rehearsal of a length moves at most this much, or has at most one call for this many of the program.
constexpr std::uint64_t kMostAheadBytes = std::uint64_t{32} << 20U;
constexpr std::uint64_t kLeastCallsForOne = 8;
constexpr std::uint64_t kBlocksOfARehearsal = 2 * (1 + Trial::kRounds);

std::uint64_t uncounted_batches(std::uint64_t batch_bytes) { return batch_bytes <= kMostCachedBytes ? 1 : 0; }

/// What this rank takes for batches that all ranks begin together: where they follow each other, ranks run ahead in
/// one, and what they save comes back in the next as waiting. The program computes between its calls.
double ticks_of(Batch& batch, Server server, Comm& penstock, std::uint64_t batches, std::uint64_t uncounted) {
  Collective barrier;
  barrier.kind = CollectiveKind::barrier;
  double sum = 0;
  batch.begin_with_first();
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

/// The greatest of the ranks' numbers: a double, or a struct of doubles. Collective.
template <typename Numbers>
Numbers greatest(Numbers numbers, Comm& penstock) {
  combine_over_ranks(penstock, ReduceOp::max, std::as_writable_bytes(std::span(&numbers, 1)));
  return numbers;
}

/// What a rank says of the calls that it has kept.
struct Looked {
  double mean_bytes = 0;
  double memory_bytes = 0;  ///< that a call needs, at most
  double lacks_one = 0;     ///< 1: it could not keep each
};

}  // namespace

/// Of the calls of a rehearsal; equal on all ranks.
struct Rehearsals::Size {
  std::uint64_t bytes = 0;         ///< of a call, see Trial
  std::uint64_t memory_bytes = 0;  ///< that a call needs, at most

  bool fits() const noexcept { return memory_bytes <= kMostMemoryBytes; }
  /// Whether the first rehearsal may come after so many calls.
  bool is_small(std::uint64_t program_calls) const noexcept {
    const std::uint64_t calls = kBlocksOfARehearsal * (1 + uncounted_batches(bytes));
    return calls * bytes <= kMostAheadBytes || calls <= program_calls / kLeastCallsForOne;
  }
};

bool Rehearsals::Part::rests() noexcept {
  if (kept != nullptr ? !kept->looks.rests(trial) : (!trial.has_chosen() || !trial.rests())) return false;
  count_in_flight();
  return true;
}

void Rehearsals::Part::count_in_flight() noexcept {
  if (trial.choice() == Server::penstock) in_flight = std::max<std::uint64_t>(in_flight, preload::in_flight() + 1);
}

Rehearsals::Part* Rehearsals::of(const Call& call, const Members& members) {
  if (has_own_lists(call.kind)) return of_lists(call, members);
  const std::optional<std::uint64_t> bytes = agreed_bytes(call, members);
  if (!bytes || *bytes > static_cast<std::uint64_t>(std::numeric_limits<int>::max()) || !is_exact(call, members.ranks))
    return nullptr;
  Part& part = parts_.of(call.kind, *bytes);
  if (!part.trial.has_chosen()) ++part.calls;
  part.count_in_flight();
  if (part.trial.rests()) return &part;
  const Size size{*bytes, 2 * *bytes * blocks_of(call.kind, members.ranks)};
  if (part.trial.has_chosen() || (size.is_small(part.calls) && size.fits())) {
    part.trial.hold();
    due_.push_back({&part, call, *bytes});
  }
  return &part;
}

Rehearsals::Part* Rehearsals::of_lists(const Call& call, const Members& members) {
  auto& part = of_lists_[static_cast<std::size_t>(call.kind)];
  if (part == nullptr) part = std::make_unique<Part>(std::make_unique<Kept>());
  if (part->rests()) return part.get();
  Kept& kept = *part->kept;
  part->count_in_flight();
  // Now: the program may change its lists when the call has completed.
  if (std::optional<BlockBytes> blocks = block_bytes(call, members))
    kept.patterns.emplace_back(call, *std::move(blocks));
  else
    kept.is_whole = false;
  if (kept.looks.keep(part->trial)) due_.push_back({part.get(), call, 0});
  return part.get();
}

void Rehearsals::run(Comm& penstock, const Members& members) {
  for (const Due& each : std::exchange(due_, {})) {
    if (each.part->kept != nullptr) {
      look(*each.part, penstock, members);
      continue;
    }
    const std::uint64_t bytes = std::max<std::uint64_t>(each.bytes, 1);
    std::vector<Pattern> patterns;
    patterns.emplace_back(each.like, each.bytes, members);
    rehearse(*each.part, std::move(patterns), {bytes, 2 * bytes * blocks_of(each.like.kind, members.ranks)}, penstock,
             members);
  }
}

void Rehearsals::look(Part& part, Comm& penstock, const Members& members) {
  Kept& kept = *part.kept;
  std::vector<Pattern> patterns = std::exchange(kept.patterns, {});
  Looked own{.lacks_one = std::exchange(kept.is_whole, true) ? 0.0 : 1.0};
  for (const Pattern& each : patterns) {
    const auto sent = static_cast<double>(each.sent_bytes());
    const auto received = static_cast<double>(each.received_bytes());
    own.mean_bytes += std::max(sent, received) / static_cast<double>(Looks::kKept);
    own.memory_bytes = std::max(own.memory_bytes, sent + received);
  }
  const Looked all = greatest(own, penstock);
  std::optional<std::uint64_t> bytes;
  if (all.lacks_one == 0) bytes = static_cast<std::uint64_t>(all.mean_bytes);
  const Size size{std::max<std::uint64_t>(bytes.value_or(0), 1),
                  std::max<std::uint64_t>(static_cast<std::uint64_t>(all.memory_bytes), 1)};
  if (kept.looks.look(part.trial, bytes) && size.fits() &&
      (part.trial.has_chosen() || size.is_small(kept.looks.calls())))
    rehearse(part, std::move(patterns), size, penstock, members);
}

void Rehearsals::rehearse(Part& part, std::vector<Pattern> patterns, const Size& size, Comm& penstock,
                          const Members& members) {
  Trial& trial = part.trial;
  const std::uint64_t calls = std::min(kBytesOfCalls / size.bytes, kMostCalls);
  const auto at_once = static_cast<std::uint64_t>(greatest(static_cast<double>(part.in_flight), penstock));
  const std::uint64_t in_flight =
      std::max<std::uint64_t>(std::min({at_once, kMostInFlight, calls, kMostMemoryBytes / size.memory_bytes}), 1);
  const std::uint64_t batches = std::max<std::uint64_t>(calls / in_flight, 1);
  const std::uint64_t uncounted = uncounted_batches(in_flight * size.bytes);
  trial.set_block_calls(in_flight * (batches + uncounted));
  Batch batch(std::move(patterns), in_flight, members);
  do {
    Times times;
    const bool mpi_first = trial.begins_with_mpi();
    if (mpi_first) times.mpi = ticks_of(batch, Server::mpi, penstock, batches, uncounted);
    times.penstock = ticks_of(batch, Server::penstock, penstock, batches, uncounted);
    if (!mpi_first) times.mpi = ticks_of(batch, Server::mpi, penstock, batches, uncounted);
    // Of the slowest rank: one that is done early computes, and later waits for it.
    trial.judge(greatest(times, penstock));
  } while (!trial.has_chosen());
}

}  // namespace penstock::preload
