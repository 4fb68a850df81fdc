// Staging buffers: shared memory through which the ranks of a node pass segments.
#pragma once

#include <algorithm>
#include <cstdint>

#include "penstock/plan.hpp"

namespace penstock::redistribute {

/// The staging buffers of a rank: a few for each other rank of its node, in rank order. Their layout depends on nothing
/// else, so a target knows where its sources put segments.
class StagingBuffers {
 public:
  StagingBuffers(const Team& team, std::uint64_t most_bytes) : team_(team) {
    for (const std::int32_t node : team.node_of_rank)
      if (node == team.node_of_rank[static_cast<std::size_t>(team.rank)]) ++neighbours_;
    --neighbours_;
    if (neighbours_ == 0) return;
    // Leave an eighth to small collectives that run at the same time.
    size_bytes_ = std::min(kMostBytes, team.shared_limit_bytes / 8 * 7 / (neighbours_ * kPerPair)) / 64 * 64;
    if (size_bytes_ < kLeastBytes) size_bytes_ = 0;
    size_bytes_ = std::min(size_bytes_, most_bytes);
  }

  static std::size_t per_pair() { return kPerPair; }
  /// Size of one buffer. 0 if there is not enough shared memory.
  std::uint64_t size_bytes() const { return size_bytes_; }
  std::uint64_t total_bytes() const { return neighbours_ * kPerPair * stride_bytes(); }

  /// The buffer for the `use`-th segment from `source` to `target`.
  Region buffer(std::int32_t source, std::int32_t target, std::size_t use, std::uint64_t segment_bytes) const {
    std::uint64_t place = 0;
    for (std::int32_t rank = 0; rank < target; ++rank)
      if (rank != source && team_.same_node(rank, source)) ++place;
    return {(use % kPerPair * neighbours_ + place) * stride_bytes(), segment_bytes, Buffer::shared};
  }
  /// All buffers of a source for `use`-th segments. They are adjacent.
  Region row(std::size_t use) const {
    const std::uint64_t row_bytes = neighbours_ * stride_bytes();
    return {use % kPerPair * row_bytes, row_bytes, Buffer::shared};
  }

 private:
  static constexpr std::uint64_t kPerPair = 3;
  static constexpr std::uint64_t kMostBytes = std::uint64_t{128} << 10;
  static constexpr std::uint64_t kLeastBytes = 1024;  // below, signals cost more than messages

  std::uint64_t stride_bytes() const { return (size_bytes_ + 63) / 64 * 64; }

  const Team& team_;
  std::uint64_t neighbours_ = 0;
  std::uint64_t size_bytes_ = 0;
};

}  // namespace penstock::redistribute
