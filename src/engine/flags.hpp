// What the ranks of a node show each other in plans of one short exchange (Plan::by_flags): a flag and the data beside
// it, in the same cache line where they are short.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "penstock/plan.hpp"

namespace penstock::engine {

class Segment;

/// What one rank shows in one operation.
struct Flag {
  std::atomic<std::uint64_t> published{0};  ///< the operation's sequence + 1, once what follows is complete
  std::uint64_t signature = 0;
  std::byte data[kFlaggedBytes];
};

/// The flags of a node's ranks. Each has a few entries, for operations whose sequences are equal modulo their number.
/// Invariant: a rank overwrites an entry only when all others are over with the operation that it was last used for, by
/// what they publish. Protected by the engine's lock.
class Flags {
 public:
  static constexpr std::uint32_t kEntries = 8;  ///< so many operations a root may be ahead of the others
  static constexpr std::uint64_t kStrideBytes = (sizeof(Flag) + 63) / 64 * 64;
  static constexpr std::uint64_t kBytesPerRank = kEntries * kStrideBytes;

  explicit Flags(Segment& segment);

  /// Constructs the flags of a rank.
  static void make(std::byte* memory);

  /// Of this rank after take(), of others once they have shown one.
  Flag& of(std::uint32_t local_rank, std::uint64_t sequence) const {
    return *reinterpret_cast<Flag*>(memory_[local_rank] + sequence % kEntries * kStrideBytes);
  }
  /// Gives memory to this rank's flags, by the first call. Throws Error(no_space).
  void take();
  /// Whether this rank may write its entry for this operation. Ranks that have `gone`, by local rank, read nothing.
  bool is_free(std::uint64_t sequence, const std::vector<bool>& gone);
  void publish(std::uint64_t sequence, std::uint64_t signature);
  /// Sequentially consistent: a sleeper asks after it has announced itself (Doorbell), and an acquiring load may come
  /// first.
  bool has_published(std::uint32_t local_rank, std::uint64_t sequence) const {
    return (memory_[local_rank] != nullptr || find(local_rank)) &&
           of(local_rank, sequence).published.load(std::memory_order_seq_cst) == sequence + 1;
  }
  /// This rank reads nothing of operations before `sequence` any more.
  void release_before(std::uint64_t sequence);

 private:
  bool find(std::uint32_t local_rank) const;

  Segment& segment_;
  mutable std::vector<std::byte*> memory_;          ///< by local rank; nullptr where none is known of
  std::array<std::uint64_t, kEntries> used_for_{};  ///< sequence + 1 of the operation that the entry was last shown for
  std::uint64_t all_are_past_ = 0;                  ///< the smallest that was published, when it was last looked at
};

}  // namespace penstock::engine
