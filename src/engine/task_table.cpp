#include "engine/task_table.hpp"

#include <cstddef>

namespace penstock::engine {

// The layout of a slot: counters, states of the tasks, entries of the ranks.
namespace {

constexpr std::uint64_t kStatesOffset = 64;
constexpr std::uint64_t kEntriesOffset = kStatesOffset + kMaxTasks * sizeof(std::uint64_t);

constexpr std::uint64_t slot_bytes(std::uint32_t ranks) { return kEntriesOffset + ranks * sizeof(TaskTable::Entry); }

}  // namespace

std::uint64_t TaskTable::bytes(std::uint32_t ranks) { return kSlots * slot_bytes(ranks); }

std::byte* TaskTable::slot(std::uint64_t sequence) const {
  static_assert(sizeof(Counters) <= kStatesOffset && kEntriesOffset % alignof(Entry) == 0);
  return memory_ + sequence % kSlots * slot_bytes(ranks_);
}

TaskTable::Counters& TaskTable::counters(std::uint64_t sequence) const {
  return *reinterpret_cast<Counters*>(slot(sequence));
}

TaskTable::State& TaskTable::state(std::uint64_t sequence, std::uint32_t task) const {
  return reinterpret_cast<State*>(slot(sequence) + kStatesOffset)[task];
}

TaskTable::Entry& TaskTable::entry(std::uint64_t sequence, std::uint32_t local_rank) const {
  return reinterpret_cast<Entry*>(slot(sequence) + kEntriesOffset)[local_rank];
}

bool TaskTable::claim(std::uint64_t sequence, std::uint32_t task) const {
  State& word = state(sequence, task);
  std::uint64_t value = word.load(std::memory_order_relaxed);
  return value >> 2 != sequence + 1 &&
         word.compare_exchange_strong(value, (sequence + 1) << 2 | kClaimed, std::memory_order_acq_rel);
}

std::uint32_t TaskTable::finish(std::uint64_t sequence, std::uint32_t task) const {
  state(sequence, task).store((sequence + 1) << 2 | kDone, std::memory_order_seq_cst);
  std::atomic<std::uint64_t>& done = counters(sequence).done;
  std::uint64_t value = done.load(std::memory_order_relaxed);
  std::uint64_t next = 0;
  do {
    next = value >> 16 == sequence ? value + 1 : (sequence << 16 | 1);
  } while (!done.compare_exchange_weak(value, next, std::memory_order_seq_cst));
  return static_cast<std::uint32_t>(next & 0xffff);
}

std::uint32_t TaskTable::done_count(std::uint64_t sequence) const {
  const std::uint64_t value = counters(sequence).done.load(std::memory_order_seq_cst);
  return value >> 16 == sequence ? static_cast<std::uint32_t>(value & 0xffff) : 0;
}

std::uint32_t TaskTable::version(std::uint64_t sequence) const {
  return counters(sequence).version.load(std::memory_order_seq_cst);
}

void TaskTable::change(std::uint64_t sequence) const {
  counters(sequence).version.fetch_add(1, std::memory_order_seq_cst);
}

}  // namespace penstock::engine
