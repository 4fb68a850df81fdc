// The flags by which the ranks of a node publish data in plans of short exchanges (Plan::by_flags). Very short data
// shares a cache line with its flag. Longer data has memory of its own: a communicator that never needs it commits one
// page.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/segment.hpp"
#include "penstock/plan.hpp"
#include "plan/rules.hpp"

namespace penstock::engine {

/// What one rank publishes in one operation.
struct Flag {
  /// Twice Flags::count_of() the last round whose data are complete, plus 1 if the data do not lie beside the flag.
  std::atomic<std::uint64_t> published{0};
  std::uint64_t signature = 0;
  std::byte data[plan::kBesideFlagBytes];
};
static_assert(sizeof(Flag) == 64);

/// The flags of all ranks of a node. Each rank has kEntries flags; an operation uses the one of its sequence modulo
/// kEntries. Invariant: a rank overwrites a flag only when release_before() of all other ranks has passed the operation
/// that used the flag last. The engine's lock protects it.
class Flags {
 public:
  static constexpr std::uint32_t kEntries = 8;        ///< how many operations a root may be ahead of the other ranks
  static constexpr std::uint64_t kStrideBytes = 128;  ///< processors fetch cache lines in pairs
  static constexpr std::uint64_t kDataStrideBytes = (plan::kFlagMemoryBytes + 63) / 64 * 64;
  static constexpr std::uint64_t kDataOffsetBytes = kEntries * kStrideBytes;
  static constexpr std::uint64_t kBytesPerRank = kDataOffsetBytes + kEntries * kDataStrideBytes;

  explicit Flags(Segment& segment);

  /// Constructs the flags of a rank in its memory.
  static void make(std::byte* memory);

  /// For this rank, call it after take(); for another rank, after has_published().
  Flag& of(std::uint32_t local_rank, std::uint64_t sequence) const {
    return *reinterpret_cast<Flag*>(memory_[local_rank] + sequence % kEntries * kStrideBytes);
  }
  /// Where this rank publishes `size_bytes` in an operation. Call it after take().
  std::byte* own_data(std::uint64_t sequence, std::uint64_t size_bytes) const {
    return data(segment_.local_rank(), sequence, is_long(size_bytes));
  }
  /// What a rank has published in an operation: call it after has_published().
  const std::byte* data_of(std::uint32_t local_rank, std::uint64_t sequence) const {
    return data(local_rank, sequence, (of(local_rank, sequence).published.load(std::memory_order_relaxed) & 1) != 0);
  }
  /// Before this rank publishes `size_bytes` in one operation: commits the memory that this needs. Throws
  /// Error(no_space).
  void take(std::uint64_t size_bytes) {
    if (!has_taken_ || (is_long(size_bytes) && !has_taken_data_)) commit(size_bytes);
  }
  /// Whether this rank may write its flag for this operation.
  bool is_free(std::uint64_t sequence);
  bool is_published(std::uint64_t sequence, std::uint32_t round) const {
    return used_for_[sequence % kEntries] >= count_of(sequence, round);
  }
  /// Rounds that are already published are not published again. `size_bytes` in all rounds, as own_data() has it.
  void publish(std::uint64_t sequence, std::uint32_t round, std::uint64_t signature, std::uint64_t size_bytes);
  /// Sequentially consistent, since a sleeper asks after it has raised Doorbell::sleepers: an acquire load could be
  /// reordered before that.
  bool has_published(std::uint32_t local_rank, std::uint64_t sequence, std::uint32_t round) const {
    if (memory_[local_rank] == nullptr && !find(local_rank)) return false;
    const std::uint64_t published = of(local_rank, sequence).published.load(std::memory_order_seq_cst) / 2;
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
  static constexpr bool is_long(std::uint64_t size_bytes) { return size_bytes > plan::kBesideFlagBytes; }
  std::byte* data(std::uint32_t local_rank, std::uint64_t sequence, bool is_long) const {
    return is_long ? memory_[local_rank] + kDataOffsetBytes + sequence % kEntries * kDataStrideBytes
                   : of(local_rank, sequence).data;
  }
  bool find(std::uint32_t local_rank) const;
  void commit(std::uint64_t size_bytes);

  Segment& segment_;
  mutable std::vector<std::byte*> memory_;          ///< by local rank; nullptr if not known
  std::array<std::uint64_t, kEntries> used_for_{};  ///< what this rank has published last
  std::uint64_t all_are_past_ = 0;                  ///< the minimum of all ranks' release_before(), as last read
  bool has_taken_ = false;
  bool has_taken_data_ = false;
};

}  // namespace penstock::engine
