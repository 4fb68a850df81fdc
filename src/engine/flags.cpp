#include "engine/flags.hpp"

#include <algorithm>
#include <limits>

#include "engine/segment.hpp"

namespace penstock::engine {

Flags::Flags(const Segment& segment) : segment_(segment) {}

Flag& Flags::of(std::uint32_t local_rank, std::uint64_t sequence) const {
  return *reinterpret_cast<Flag*>(segment_.flags(local_rank) + sequence % kEntries * kStrideBytes);
}

bool Flags::is_free(std::uint64_t sequence, const std::vector<bool>& gone) {
  const std::uint64_t last = used_for_[sequence % kEntries];
  if (last <= all_are_past_ || last == sequence + 1) return true;
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (std::uint32_t rank = 0; rank < gone.size(); ++rank)
    if (rank != segment_.local_rank() && !gone[rank])
      least = std::min(least, segment_.slot(rank).past_flags_of.load(std::memory_order_acquire));
  all_are_past_ = least;
  return last <= all_are_past_;
}

void Flags::show(std::uint64_t sequence, std::uint64_t signature) {
  std::uint64_t& used_for = used_for_[sequence % kEntries];
  if (used_for == sequence + 1) return;
  used_for = sequence + 1;
  Flag& flag = of(segment_.local_rank(), sequence);
  flag.signature = signature;
  // So that a peer that goes to sleep sees it, or this rank sees that the peer sleeps (Doorbell).
  flag.shown.store(sequence + 1, std::memory_order_seq_cst);
}

void Flags::publish(std::uint64_t sequence) {
  segment_.slot(segment_.local_rank()).past_flags_of.store(sequence, std::memory_order_release);
}

}  // namespace penstock::engine
