#include "engine/flags.hpp"

#include <algorithm>
#include <limits>
#include <new>

namespace penstock::engine {
namespace {

/// Asks for a cache line that this thread is about to write and that other cores have read, without waiting for it.
void prefetch_for_write(const void* line) noexcept {
#if defined(__x86_64__)
  // By its name: compilers emit a prefetch for reading unless they know the processor, and those without it ignore it.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace

Flags::Flags(Segment& segment) : segment_(segment), memory_(segment.layout().ranks, nullptr) {}

void Flags::make(std::byte* memory) {
  for (std::uint32_t entry = 0; entry < kEntries; ++entry) new (memory + entry * kStrideBytes) Flag;
}

void Flags::commit(std::uint64_t size_bytes) {
  segment_.commit_flags();
  memory_[segment_.local_rank()] = segment_.flags(segment_.local_rank());
  has_taken_ = true;
  if (!is_long(size_bytes)) return;
  segment_.commit_flag_data();
  has_taken_data_ = true;
}

bool Flags::find(std::uint32_t local_rank) const {
  memory_[local_rank] = segment_.flags(local_rank);
  return memory_[local_rank] != nullptr;
}

bool Flags::is_free(std::uint64_t sequence) {
  const std::uint64_t last = used_for_[sequence % kEntries] / plan::kFlagRounds;  // sequence + 1 of an operation
  if (last <= all_are_past_ || last == sequence + 1) return true;
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (std::uint32_t rank = 0; rank < memory_.size(); ++rank)
    if (rank != segment_.local_rank())
      least = std::min(least, segment_.slot(rank).past_flags_of.load(std::memory_order_acquire));
  all_are_past_ = least;
  return last <= all_are_past_;
}

void Flags::publish(std::uint64_t sequence, std::uint32_t round, std::uint64_t signature, std::uint64_t size_bytes) {
  std::uint64_t& used_for = used_for_[sequence % kEntries];
  const std::uint64_t count = count_of(sequence, round);
  if (used_for >= count) return;
  Flag& flag = of(segment_.local_rank(), sequence);
  if (used_for < count_of(sequence, 0)) flag.signature = signature;
  used_for = count;
  // Sequentially consistent: either a peer that goes to sleep sees the flag, or this rank sees the sleeper (Doorbell).
  flag.published.store(2 * count + (is_long(size_bytes) ? 1 : 0), std::memory_order_seq_cst);
  // The store waits until the peers' copies of the cache line are gone. Those of the next one can go meanwhile.
  prefetch_for_write(&of(segment_.local_rank(), sequence + 1));
}

void Flags::release_before(std::uint64_t sequence) {
  segment_.slot(segment_.local_rank()).past_flags_of.store(sequence, std::memory_order_release);
}

}  // namespace penstock::engine
