// How the ranks of a node know that one of them has given up an operation, whose memory they may be reading.
#pragma once

#include <cstdint>
#include <string>

#include "engine/segment.hpp"
#include "penstock/error.hpp"

namespace penstock::engine {

/// Thrown where a rank is found dead, and nowhere else: no operation after this one can be completed.
class PeerGone final : public Error {
 public:
  PeerGone(const std::string& text, int rank) : Error(ErrorCode::peer_failed, text, rank) {}
};

/// A bit for each operation of a rank that others may read from. An operation uses that of its sequence modulo
/// RankSlot::kFailureBits, and does not begin before the one that had it is over: see may_begin().
class Failures {
 public:
  static bool may_begin(std::uint64_t sequence, std::uint64_t completed_before) {
    return sequence < completed_before + RankSlot::kFailureBits;
  }
  static void begin(RankSlot& own, std::uint64_t sequence) {
    std::atomic<std::uint64_t>& word = word_of(own, sequence);
    if (word.load(std::memory_order_relaxed) & bit_of(sequence)) word.fetch_and(~bit_of(sequence));
  }
  /// Before the memory of the operation is given back.
  static void add(RankSlot& own, std::uint64_t sequence) { word_of(own, sequence).fetch_or(bit_of(sequence)); }
  /// Asked after memory of an operation was read that cannot be completed without the reader: if it is over, it failed.
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
