#include "engine/board.hpp"

#include <cstddef>

namespace penstock::engine {

// A slot: counters, the states of the tasks, the entries of the ranks.
namespace {

constexpr std::uint64_t kStatesOffset = 64;
constexpr std::uint64_t kEntriesOffset = kStatesOffset + kBoardTasks * sizeof(std::uint64_t);

constexpr std::uint64_t slot_bytes(std::uint32_t ranks) { return kEntriesOffset + ranks * sizeof(Board::Entry); }

}  // namespace

std::uint64_t Board::bytes(std::uint32_t ranks) { return kSlots * slot_bytes(ranks); }

std::byte* Board::slot(std::uint64_t sequence) const {
  static_assert(sizeof(Counters) <= kStatesOffset && kEntriesOffset % alignof(Entry) == 0);
  return memory_ + sequence % kSlots * slot_bytes(ranks_);
}

Board::Counters& Board::counters(std::uint64_t sequence) const { return *reinterpret_cast<Counters*>(slot(sequence)); }

Board::State& Board::state(std::uint64_t sequence, std::uint32_t task) const {
  return reinterpret_cast<State*>(slot(sequence) + kStatesOffset)[task];
}

Board::Entry& Board::entry(std::uint64_t sequence, std::uint32_t local_rank) const {
  return reinterpret_cast<Entry*>(slot(sequence) + kEntriesOffset)[local_rank];
}

bool Board::claim(std::uint64_t sequence, std::uint32_t task) const {
  State& word = state(sequence, task);
  std::uint64_t value = word.load(std::memory_order_relaxed);
  return value >> 2 != sequence + 1 &&
         word.compare_exchange_strong(value, (sequence + 1) << 2 | kClaimed, std::memory_order_acq_rel);
}

std::uint32_t Board::finish(std::uint64_t sequence, std::uint32_t task) const {
  state(sequence, task).store((sequence + 1) << 2 | kDone, std::memory_order_seq_cst);
  std::atomic<std::uint64_t>& done = counters(sequence).done;
  std::uint64_t value = done.load(std::memory_order_relaxed);
  std::uint64_t next = 0;
  do {
    next = value >> 16 == sequence ? value + 1 : (sequence << 16 | 1);
  } while (!done.compare_exchange_weak(value, next, std::memory_order_seq_cst));
  return static_cast<std::uint32_t>(next & 0xffff);
}

std::uint32_t Board::done_count(std::uint64_t sequence) const {
  const std::uint64_t value = counters(sequence).done.load(std::memory_order_seq_cst);
  return value >> 16 == sequence ? static_cast<std::uint32_t>(value & 0xffff) : 0;
}

std::uint32_t Board::version(std::uint64_t sequence) const {
  return counters(sequence).version.load(std::memory_order_seq_cst);
}

void Board::change(std::uint64_t sequence) const { counters(sequence).version.fetch_add(1, std::memory_order_seq_cst); }

}  // namespace penstock::engine
