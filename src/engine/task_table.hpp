// The state of shared tasks (plan.hpp) in the node's segment: which ranks have come, who does what, what is done.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace penstock::engine {

class Segment;

inline constexpr std::uint32_t kMaxTasks = 1024;     ///< of one plan; the planners' kMaxTasks must not be larger
inline constexpr std::uint32_t kMaxTaskGroups = 64;  ///< share steps of one plan

/// An operation with shared tasks uses the slot `sequence % kSlots` of the task table. A rank enters it only when all
/// ranks of the node have completed the operation that had the slot before, so nothing is ever reset: every value says
/// to which operation it belongs.
///
/// The invariant that keeps memory safe: a task runs only between start_running() and stop_running(), and only if none
/// of the ranks that it touches had failed the operation at a moment in between. So a rank that has made its failure
/// visible and then sees nobody running may give back its memory.
class TaskTable {
 public:
  static constexpr std::uint32_t kSlots = 16;

  /// Where a rank's buffers of one operation lie. Written by that rank alone, before it enters its first group.
  struct alignas(64) Entry {
    std::atomic<std::uint64_t> sequence_plus_1{0};  ///< of the operation that the rest belongs to
    std::uint64_t signature = 0;
    std::array<std::uint64_t, 4> address{};  ///< by Buffer; of `shared` the offset in the rank's ring
    std::atomic<std::uint64_t> entered{0};   ///< bits: the groups whose publish_tasks step this rank has come to
    std::atomic<std::uint32_t> running{0};   ///< tasks of this operation that this rank's threads work on
    std::array<std::atomic<std::uint32_t>, kMaxTaskGroups>
        left{};  ///< by group: tasks that touch this rank and are not done
  };

  static std::uint64_t bytes(std::uint32_t ranks);

  /// Memory that is zero is an empty task table, so that any rank may be the first to need it.
  TaskTable(std::byte* memory, std::uint32_t ranks) : memory_(memory), ranks_(ranks) {}

  Entry& entry(std::uint64_t sequence, std::uint32_t local_rank) const;

  bool is_claimed(std::uint64_t sequence, std::uint32_t task) const { return phase(sequence, task) != 0; }
  bool is_done(std::uint64_t sequence, std::uint32_t task) const { return phase(sequence, task) == kDone; }
  /// True for one caller.
  bool claim(std::uint64_t sequence, std::uint32_t task) const;
  /// Makes what the task has written visible; returns how many tasks of the operation are done.
  std::uint32_t finish(std::uint64_t sequence, std::uint32_t task) const;
  std::uint32_t done_count(std::uint64_t sequence) const;

  /// Differs after something may have become ready.
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
