// The state of tasks (SharedTask) in the node's shared memory: which ranks have published them, which are claimed,
// which are done.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace penstock::engine {

class Segment;

inline constexpr std::uint32_t kMaxTasks = 1024;     ///< of one plan; the planners' kMaxTasks must not be larger
inline constexpr std::uint32_t kMaxTaskGroups = 64;  ///< of one plan: one per publish_tasks step

/// An operation with tasks uses the slot `sequence % kSlots`. A rank enters the slot only when all ranks of the node
/// have completed the operation that used it before. Nothing is reset: every value names the operation that it belongs
/// to.
///
/// Invariant that keeps memory safe: a rank counts a task in Entry::running before it claims the task, and claims it
/// only if none of the ranks that the task touches has failed the operation. So when a rank has published its failure
/// and then sees no rank running a task of the operation, it may release its memory.
class TaskTable {
 public:
  static constexpr std::uint32_t kSlots = 16;

  /// One rank's part of a slot: where its buffers of the operation lie. Only that rank writes it, before it publishes
  /// its first group.
  struct alignas(64) Entry {
    std::atomic<std::uint64_t> sequence_plus_1{0};  ///< names the operation that the entry belongs to
    std::uint64_t signature = 0;
    std::array<std::uint64_t, 4> address{};  ///< by Buffer; of `shared` the offset in the rank's ring
    std::atomic<std::uint64_t> entered{0};   ///< bits: the task groups that this rank has published
    std::atomic<std::uint32_t> running{0};   ///< tasks of this operation that threads of this rank run
    std::array<std::atomic<std::uint32_t>, kMaxTaskGroups>
        left{};  ///< by group: tasks that touch this rank's memory and are not done
  };

  static std::uint64_t bytes(std::uint32_t ranks);

  /// Zeroed memory is an empty table, so any rank can be the first to use it.
  TaskTable(std::byte* memory, std::uint32_t ranks) : memory_(memory), ranks_(ranks) {}

  Entry& entry(std::uint64_t sequence, std::uint32_t local_rank) const;
  /// The rank's entry is of this operation.
  bool has_come(std::uint64_t sequence, std::uint32_t local_rank) const {
    return entry(sequence, local_rank).sequence_plus_1.load(std::memory_order_seq_cst) == sequence + 1;
  }

  bool is_claimed(std::uint64_t sequence, std::uint32_t task) const { return phase(sequence, task) != 0; }
  bool is_done(std::uint64_t sequence, std::uint32_t task) const { return phase(sequence, task) == kDone; }
  /// True for exactly one caller.
  bool claim(std::uint64_t sequence, std::uint32_t task) const;
  /// Marks the task as done and publishes its writes. Returns how many tasks of the operation are done.
  std::uint32_t finish(std::uint64_t sequence, std::uint32_t task) const;
  std::uint32_t done_count(std::uint64_t sequence) const;

  /// Changes whenever a task may have become ready.
  std::uint32_t version(std::uint64_t sequence) const;
  void change(std::uint64_t sequence) const;

 private:
  static constexpr std::uint64_t kClaimed = 1;
  static constexpr std::uint64_t kDone = 2;
  struct alignas(64) Counters {
    std::atomic<std::uint64_t> done{0};  ///< sequence << 16 | count
    std::atomic<std::uint32_t> version{0};
  };
  using State = std::atomic<std::uint64_t>;  ///< (sequence + 1) << 2 | phase

  std::byte* slot(std::uint64_t sequence) const;
  Counters& counters(std::uint64_t sequence) const;
  State& state(std::uint64_t sequence, std::uint32_t task) const;
  std::uint64_t phase(std::uint64_t sequence, std::uint32_t task) const {
    const std::uint64_t value = state(sequence, task).load(std::memory_order_seq_cst);
    return value >> 2 == sequence + 1 ? value & 3 : 0;
  }

  std::byte* memory_;
  std::uint32_t ranks_;
};

}  // namespace penstock::engine
