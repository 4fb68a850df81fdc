// Space for Buffer::shared in this rank's part of the segment.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace penstock::engine {

/// A ring: operations take space in the order of their sequence, and the oldest is given back first. Peers may read an
/// operation's space until they have completed that operation, so it is free only when every rank of the node has.
class RingAllocator {
 public:
  explicit RingAllocator(std::uint64_t bytes) : bytes_(bytes) {}

  /// The largest space that is certain to become available once older operations are over.
  std::uint64_t limit_bytes() const { return bytes_; }

  /// Offset of the space, or nothing while older operations hold too much.
  std::optional<std::uint64_t> take(std::uint64_t sequence, std::uint64_t bytes);

  /// Gives back the space of all operations before `sequence`.
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
