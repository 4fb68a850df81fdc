// Copy-in/copy-out through shared memory: a writer copies its buffer into a few staging buffers in turn, its readers
// copy it out of them.
//
// It needs two copies, while process_vm_readv needs one. But the staging buffers stay in the caches, and no pages of
// another process are looked up. It is faster for data that fits in the last-level cache.
#pragma once

#include <span>
#include <vector>

#include "collectives/parts/arguments.hpp"
#include "collectives/parts/stage.hpp"
#include "plan/region.hpp"

namespace penstock::collectives {

/// Cuts a buffer of `collective` into segments so that the staging buffers of kInFlight segments fit in a rank's shared
/// memory.
class StagedSegments {
 public:
  static constexpr std::uint32_t kInFlight = 4;

  /// Each segment has `parts` parts, each at most as long as a staging buffer. A rank needs `buffers` staging buffers
  /// per segment in flight. Segments have collective.segment_bytes if they fit. With reduce_scatter and
  /// reduce_scatter_block the block of each rank is cut: a segment has a part of each block, and that of the longest
  /// block has collective.segment_bytes.
  StagedSegments(const Team& team, const Collective& collective, std::uint32_t parts, std::uint32_t buffers);

  std::uint32_t count() const { return count_; }
  /// The number of segments whose part `index` is not empty; they come first. With allgatherv: of the block of a rank.
  std::uint32_t count(std::uint32_t index) const;
  /// Length of a staging buffer: of the longest part, rounded up to a multiple of 64.
  std::uint64_t buffer_bytes() const { return buffer_bytes_; }
  /// Segment `segment` of a buffer or block of the operation.
  Region of(Region whole, std::uint32_t segment) const;
  /// Part `index` of segment `segment` of a buffer of the operation.
  Region part(Region whole, std::uint32_t segment, std::uint32_t index) const;

 private:
  std::uint64_t elements(std::uint32_t segment) const;

  const Collective& collective_;
  std::uint64_t element_bytes_;
  std::uint64_t elements_;
  std::uint64_t buffer_bytes_ = 0;
  std::uint32_t count_ = 0;
  std::uint32_t parts_;
};

/// The staging buffers through which one writer passes one part of each segment to its readers. Writer and readers
/// construct equal streams. Empty parts are left out, since both sides know their size.
class StagingStream {
 public:
  /// `number` distinguishes the streams between two ranks. `index_in_memory` is the index of this stream among those of
  /// its writer, which follow each other in the writer's shared memory.
  StagingStream(const StagedSegments& segments, std::uint32_t part, std::uint32_t number, std::uint64_t index_in_memory)
      : buffer_bytes_(segments.buffer_bytes()),
        first_byte_(index_in_memory * StagedSegments::kInFlight * segments.buffer_bytes()),
        segments_(segments.count(part)),
        number_(number) {}

  /// Waits until all readers have released the staging buffer of `segment`, copies `from` into it and publishes it.
  void put(Sequence& sequence, std::uint32_t segment, Region from, std::span<const int> readers) const;
  /// Waits for the staging buffer, copies it into `to` and releases it.
  void get(Sequence& sequence, std::uint32_t segment, int writer, Region to) const;

 private:
  static constexpr std::uint32_t kStreams = 2;  // between two ranks in each direction

  Region buffer(std::uint32_t segment, std::uint64_t size_bytes) const;
  std::uint32_t full_tag(std::uint32_t segment) const { return (segment * kStreams + number_) * 2; }
  std::uint32_t free_tag(std::uint32_t segment) const { return full_tag(segment) + 1; }

  std::uint64_t buffer_bytes_;
  std::uint64_t first_byte_;
  std::uint32_t segments_;
  std::uint32_t number_;
};

/// Combines the contributions of all ranks to one part of a segment, in rank order.
class StagedSums {
 public:
  StagedSums(Sequence& sequence, const Team& team, const Collective& collective, std::uint64_t most_bytes);

  /// `get(rank, to)` copies the contribution of another rank; `own` is this rank's. Returns the sum: in `target`,
  /// unless that is empty or overlaps `own`. Then the sum is in scratch memory, which the sum after the next one
  /// overwrites.
  template <typename Get>
  Region combine(Region own, Region target, const Get& get) {
    const bool in_target = target.size_bytes > 0 && !(target.buffer == own.buffer && plan::overlap(target, own));
    const Region sum = in_target ? target : piece(sums_, sum_uses_++, own);
    for (const int rank : order_) {
      const bool is_first = rank == order_.front();
      if (rank == team_.rank) {
        is_first ? sequence_.copy(own, sum) : sequence_.reduce(own, sum);
        continue;
      }
      const Region to = is_first ? sum : piece(landings_, landing_uses_++, own);
      get(rank, to);
      if (!is_first) sequence_.reduce(to, sum);
    }
    return sum;
  }

 private:
  static constexpr std::uint32_t kInFlight = 2;

  Region piece(Region pieces, std::uint32_t use, Region like) const {
    return {pieces.offset_bytes + use % kInFlight * most_bytes_, like.size_bytes, Buffer::scratch};
  }

  Sequence& sequence_;
  const Team& team_;
  std::vector<int> order_;  ///< of the ranks, the last operand first
  std::uint64_t most_bytes_;
  Region landings_;
  Region sums_;
  std::uint32_t landing_uses_ = 0;
  std::uint32_t sum_uses_ = 0;
};

/// All ranks but `rank`, in cyclic order from the next one on.
std::vector<int> others(const Team& team, int rank);

}  // namespace penstock::collectives
