// Bits in shared memory by which a rank tells its node that it has failed an operation.
#pragma once

#include <cstdint>
#include <string>

#include "engine/segment.hpp"
#include "penstock/error.hpp"

namespace penstock::engine {

/// Thrown only if a rank is found dead. Neither this operation nor a later one can be completed.
class PeerGone final : public Error {
 public:
  PeerGone(const std::string& text, int rank) : Error(ErrorCode::peer_failed, text, rank) {}
};

/// For peers that may be reading memory of the operation. One bit per operation and rank. An operation uses the bit of
/// its sequence modulo RankSlot::kFailureBits. It may begin only when the previous user of the bit is over:
/// may_begin().
class Failures {
 public:
  static bool may_begin(std::uint64_t sequence, std::uint64_t completed_before) {
    return sequence < completed_before + RankSlot::kFailureBits;
  }
  static void begin(RankSlot& own, std::uint64_t sequence) {
    std::atomic<std::uint64_t>& word = word_of(own, sequence);
    if (word.load(std::memory_order_relaxed) & bit_of(sequence)) word.fetch_and(~bit_of(sequence));
  }
  /// Called before the memory of the operation is released.
  static void add(RankSlot& own, std::uint64_t sequence) { word_of(own, sequence).fetch_or(bit_of(sequence)); }
  /// A reader asks after it has read memory of the operation. The peer cannot complete the operation without the
  /// reader, so if it is over at the peer, it failed.
  static bool has(RankSlot& peer, std::uint64_t sequence) {
    return (word_of(peer, sequence).load(std::memory_order_seq_cst) & bit_of(sequence)) != 0 ||
           peer.completed_before.load(std::memory_order_seq_cst) > sequence;
  }

 private:
  static std::atomic<std::uint64_t>& word_of(RankSlot& slot, std::uint64_t sequence) {
    return slot.failed[sequence % RankSlot::kFailureBits / 64];
  }
  static std::uint64_t bit_of(std::uint64_t sequence) { return std::uint64_t{1} << sequence % 64; }
};

/// For peers that wait in the operation: those that the rank has failed by itself, and of which it tells all others. A
/// notice of it needs a cell, and ranks that do not receive can hold all cells; these bits need nothing. A word has the
/// bits of a block of operations, and the number of that block.
class FailuresForAll {
 public:
  static constexpr std::uint64_t kBlock = 16;
  /// A rank that fails an operation knows at least of so many before whether it has failed them.
  static constexpr std::uint64_t kForgets = (RankSlot::kFailedForAllWords - 1) * kBlock;

  static void add(RankSlot& own, std::uint64_t sequence) {
    std::atomic<std::uint64_t>& word = word_of(own, sequence);
    const std::uint64_t before = word.load(std::memory_order_relaxed);
    if (block_in(before) > sequence / kBlock) return;
    const std::uint64_t of_block = block_in(before) == sequence / kBlock ? before : sequence / kBlock << kBlock;
    word.store(of_block | std::uint64_t{1} << sequence % kBlock, std::memory_order_seq_cst);
  }
  /// False if the peer does not know it any more: an operation that it has completed must not fail here.
  static bool has(RankSlot& peer, std::uint64_t sequence) {
    const std::uint64_t word = word_of(peer, sequence).load(std::memory_order_seq_cst);
    return block_in(word) == sequence / kBlock && (word >> sequence % kBlock & 1) != 0;
  }

 private:
  static std::uint64_t block_in(std::uint64_t word) { return word >> kBlock; }
  static std::atomic<std::uint64_t>& word_of(RankSlot& slot, std::uint64_t sequence) {
    return slot.failed_for_all[sequence / kBlock % RankSlot::kFailedForAllWords];
  }
};

}  // namespace penstock::engine
