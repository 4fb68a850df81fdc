// Allocates Buffer::shared of operations from the ring of this rank: its part of the node's shared memory.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace penstock::engine {

/// Hands out offsets, no memory. Operations allocate in the order of their sequence and free in the same order. Peers
/// may read the space of an operation until they have completed it, so it is freed when all ranks of the node have. The
/// engine's lock protects it.
class RingAllocator {
 public:
  explicit RingAllocator(std::uint64_t bytes) : bytes_(bytes) {}

  /// The offset of the space, or std::nullopt until older operations are freed.
  std::optional<std::uint64_t> take(std::uint64_t sequence, std::uint64_t bytes);

  /// Frees the space of all operations before `sequence`.
  void free_before(std::uint64_t sequence);

 private:
  struct Block {
    std::uint64_t sequence;
    std::uint64_t offset;
    std::uint64_t end;
  };
  const std::uint64_t bytes_;
  std::deque<Block> blocks_;
};

}  // namespace penstock::engine
