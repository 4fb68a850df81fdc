#include "engine/ring_allocator.hpp"

namespace penstock::engine {

std::optional<std::uint64_t> RingAllocator::take(std::uint64_t sequence, std::uint64_t bytes) {
  bytes = (bytes + 63) / 64 * 64;
  std::uint64_t offset = 0;
  if (!blocks_.empty()) {
    const std::uint64_t first = blocks_.front().offset;
    const std::uint64_t end = blocks_.back().end;
    if (end > first) {
      if (bytes_ - end >= bytes)
        offset = end;
      else if (first < bytes)
        return std::nullopt;
    } else if (first - end >= bytes) {
      offset = end;
    } else {
      return std::nullopt;
    }
  }
  if (bytes > bytes_) return std::nullopt;
  if (bytes > 0) blocks_.push_back({sequence, offset, offset + bytes});
  return offset;
}

void RingAllocator::free_before(std::uint64_t sequence) {
  while (!blocks_.empty() && blocks_.front().sequence < sequence) blocks_.pop_front();
}

}  // namespace penstock::engine
