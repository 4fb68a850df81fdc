#include "preload/shared_times.hpp"

#include <algorithm>
#include <atomic>

namespace penstock::preload {
namespace {

constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kMostSlots = 32;
/// A rank ends a round only when the one before has been judged, so all ranks have published that one, and none reads
/// the times of the one before it any more.
constexpr std::uint64_t kRounds = 2;

/// Grows with the round and with how often it was asked about. 0: nobody has asked.
constexpr std::uint64_t answer_no(std::uint64_t round, unsigned asked) { return (round + 1) << 16U | asked << 1U; }
constexpr std::uint64_t answer_yes(std::uint64_t round, unsigned asked) { return answer_no(round, asked) | 1U; }

constexpr std::size_t slot_bytes(int ranks) { return kRounds * (1 + static_cast<std::size_t>(ranks)) * kLineBytes; }

}  // namespace

struct alignas(kLineBytes) SharedTimes::Entry {
  std::uint64_t published;  ///< rounds
  Times times;
};

std::size_t SharedTimes::slots_for(int ranks) noexcept { return std::min(kMostBytes / slot_bytes(ranks), kMostSlots); }

SharedTimes::SharedTimes(std::byte* memory, int rank, int ranks) noexcept
    : memory_(memory), rank_(rank), ranks_(ranks) {}

std::uint64_t& SharedTimes::answer(std::size_t slot, std::uint64_t round) const noexcept {
  return *reinterpret_cast<std::uint64_t*>(memory_ + slot * slot_bytes(ranks_) + round % kRounds * kLineBytes);
}

SharedTimes::Entry& SharedTimes::entry(std::size_t slot, std::uint64_t round, int rank) const noexcept {
  static_assert(sizeof(Entry) == kLineBytes);
  const std::size_t line =
      kRounds + round % kRounds * static_cast<std::size_t>(ranks_) + static_cast<std::size_t>(rank);
  return *reinterpret_cast<Entry*>(memory_ + slot * slot_bytes(ranks_) + line * kLineBytes);
}

bool SharedTimes::have_all_published(std::size_t slot, std::uint64_t round) const noexcept {
  for (int rank = 0; rank < ranks_; ++rank)
    if (std::atomic_ref(entry(slot, round, rank).published).load(std::memory_order_acquire) != round + 1) return false;
  return true;
}

/// In the order of the ranks, so all get the same bits.
Times SharedTimes::sum(std::size_t slot, std::uint64_t round) const noexcept {
  Times sum;
  for (int rank = 0; rank < ranks_; ++rank) sum += entry(slot, round, rank).times;
  return sum;
}

void SharedTimes::publish(std::size_t slot, Trial& trial) noexcept {
  Entry& own = entry(slot, trial.rounds(), rank_);
  own.times = trial.times();
  std::atomic_ref(own.published).store(trial.rounds() + 1, std::memory_order_release);
  trial.hold_until_asked();
}

bool SharedTimes::ask(std::size_t slot, Trial& trial) noexcept {
  const std::uint64_t round = trial.rounds();
  const std::uint64_t no = answer_no(round, trial.asked());
  const std::uint64_t yes = answer_yes(round, trial.asked());
  const std::atomic_ref word(answer(slot, round));
  std::uint64_t found = word.load(std::memory_order_acquire);
  while (found < no) {
    const std::uint64_t given = have_all_published(slot, round) ? yes : no;
    if (word.compare_exchange_weak(found, given, std::memory_order_acq_rel, std::memory_order_acquire)) found = given;
  }
  // Another rank has asked later, too, if a greater one is found. So this one was no.
  if (found != yes) {
    trial.hold_longer();
    return false;
  }
  trial.judge(with_mean_bytes(sum(slot, round), ranks_));
  return true;
}

}  // namespace penstock::preload
