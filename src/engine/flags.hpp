// The flags by which the ranks of a node publish data in plans of short exchanges (Plan::by_flags). Short data shares a
// cache line with its flag.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "penstock/plan.hpp"
#include "plan/rules.hpp"

namespace penstock::engine {

class Segment;

/// What one rank publishes in one operation.
struct Flag {
  /// Flags::count_of() the last round whose data are complete.
  std::atomic<std::uint64_t> published{0};
  std::uint64_t signature = 0;
  std::byte data[plan::kFlagMemoryBytes];
};
static_assert(offsetof(Flag, data) + plan::kBesideFlagBytes == 64);

/// The flags of all ranks of a node. Each rank has kEntries flags; an operation uses the one of its sequence modulo
/// kEntries. Invariant: a rank overwrites a flag only when release_before() of all other ranks has passed the operation
/// that used the flag last. The engine's lock protects it.
class Flags {
 public:
  static constexpr std::uint32_t kEntries = 8;  ///< how many operations a root may be ahead of the other ranks
  static constexpr std::uint64_t kStrideBytes = (sizeof(Flag) + 63) / 64 * 64;
  static constexpr std::uint64_t kBytesPerRank = kEntries * kStrideBytes;

  explicit Flags(Segment& segment);

  /// Constructs the flags of a rank in its memory.
  static void make(std::byte* memory);

  /// For this rank, call it after take(); for another rank, after has_published().
  Flag& of(std::uint32_t local_rank, std::uint64_t sequence) const {
    return *reinterpret_cast<Flag*>(memory_[local_rank] + sequence % kEntries * kStrideBytes);
  }
  /// The first call commits the memory of this rank's flags. Throws Error(no_space).
  void take();
  /// Whether this rank may write its flag for this operation.
  bool is_free(std::uint64_t sequence);
  bool is_published(std::uint64_t sequence, std::uint32_t round) const {
    return used_for_[sequence % kEntries] >= count_of(sequence, round);
  }
  /// Rounds that are already published are not published again.
  void publish(std::uint64_t sequence, std::uint32_t round, std::uint64_t signature);
  /// Sequentially consistent, since a sleeper asks after it has raised Doorbell::sleepers: an acquire load could be
  /// reordered before that.
  bool has_published(std::uint32_t local_rank, std::uint64_t sequence, std::uint32_t round) const {
    if (memory_[local_rank] == nullptr && !find(local_rank)) return false;
    const std::uint64_t published = of(local_rank, sequence).published.load(std::memory_order_seq_cst);
    // A rank that has failed this operation may have published a later one.
    return published >= count_of(sequence, round) && published < count_of(sequence + 1, 0);
  }
  /// Tells the other ranks that this rank reads no flags of operations before `sequence` any more.
  void release_before(std::uint64_t sequence);

 private:
  /// Grows with the rounds of an operation and from each operation to the next one.
  static constexpr std::uint64_t count_of(std::uint64_t sequence, std::uint32_t round) {
    return (sequence + 1) * plan::kFlagRounds + round;
  }
  bool find(std::uint32_t local_rank) const;

  Segment& segment_;
  mutable std::vector<std::byte*> memory_;          ///< by local rank; nullptr if not known
  std::array<std::uint64_t, kEntries> used_for_{};  ///< what this rank has published last
  std::uint64_t all_are_past_ = 0;                  ///< the minimum of all ranks' release_before(), as last read
};

}  // namespace penstock::engine
