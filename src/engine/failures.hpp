// Bits in shared memory by which a rank tells its node that it has failed an operation, whose memory peers may be
// reading.
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

/// One bit per operation and rank. An operation uses the bit of its sequence modulo RankSlot::kFailureBits. It may
/// begin only when the previous user of the bit is over: may_begin().
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

}  // namespace penstock::engine
