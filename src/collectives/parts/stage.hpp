// The stages that algorithms are composed of: one segment, moved or combined along one tree.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/parts/arguments.hpp"
#include "collectives/parts/group.hpp"
#include "plan/eager.hpp"

namespace penstock::collectives {

using plan::kEagerBytes;                            // the default length of segments
inline constexpr std::uint32_t kMaxSegments = 320;  // bounds the length of plans, and with kStageTags the tags
inline constexpr std::uint32_t kStageInFlight = 8;  // segments for which an inner rank of a reduction has memory
inline constexpr std::uint32_t kStageTags = 512;    // stage k uses the tags [k * kStageTags, (k + 1) * kStageTags)

/// Cuts a buffer of `collective` into pipeline segments of whole elements. Their sizes differ by at most one element.
class Segments {
 public:
  /// Segments of collective.segment_bytes, or of `default_bytes` if that is 0. At most `most` segments; `most` is at
  /// most kStageTags.
  Segments(const Collective& collective, std::uint64_t default_bytes, std::uint32_t most);
  explicit Segments(const Collective& collective) : Segments(collective, kEagerBytes, kMaxSegments) {}

  std::uint32_t count() const { return count_; }
  std::uint64_t largest_bytes() const { return (elements_ + count_ - 1) / count_ * element_bytes_; }
  Region of(Region whole, std::uint32_t segment) const;
  /// `many` consecutive segments as one region.
  Region of(Region whole, std::uint32_t first, std::uint32_t many) const;

 private:
  std::uint64_t elements_;
  std::uint64_t element_bytes_;
  std::uint32_t count_ = 1;
};

/// The number of pieces of `bytes` if none is longer than `segment_bytes` (0: kEagerBytes); at least 1, at most `most`.
std::uint64_t pieces_of(std::uint64_t bytes, std::uint64_t segment_bytes, std::uint64_t most);

/// Part `index` of a buffer of `elements` elements that is cut into `parts` parts. Sizes differ by at most one element.
Region part_of(Region whole, std::uint64_t elements, std::uint64_t element_bytes, std::uint64_t parts,
               std::uint64_t index);

/// Identifies a stage in its plan: its tags, and the number of tree levels above it.
struct StageId {
  std::uint32_t number = 0;
  int levels_above = 0;

  std::uint32_t tag(std::uint32_t segment) const { return number * kStageTags + segment; }
};

/// Broadcasts `data`, one segment, from the root of the tree. Ranks outside of the tree do not call it.
void bcast_stage(Sequence& sequence, const Tree& tree, Region data, std::uint32_t segment, StageId stage);

/// The ranks at the indices [first, first + count) of a group, as runs of consecutive ranks, in the group's order.
std::vector<Run> runs_of(const Group& group, int first, int count);

/// A dissemination barrier of the group by empty messages, radix - 1 of each rank in a round. Returns the step after
/// which all ranks of the group have completed `after`; kNone in a group of one rank that waits for nothing.
StepId dissemination_stage(Sequence& sequence, const Group& group, int radix, std::uint32_t first_tag, StepId after);

/// A sum over this rank's contribution and those of peers. It starts as `own`; the first addition writes it to
/// `target`, so no copy is needed.
class Accumulator {
 public:
  Accumulator(Region own, Region target) : own_(own), target_(target), is_in_target_(own == target) {}

  /// The region that holds the sum now.
  Region value() const { return is_in_target_ ? target_ : own_; }
  /// Receives a contribution and adds it. It is received into `landing`, or into the target while that is free.
  void add(Sequence& sequence, int peer, std::uint32_t tag, Region landing);

 private:
  // Not one region that changes: GCC 12 loses the assignment if it inlines both ends of it.
  Region own_;
  Region target_;
  bool is_in_target_;
};

/// Combines the segments of all ranks of a tree into the root's target. Reserves scratch memory for a few segments in
/// flight.
class ReduceStage {
 public:
  ReduceStage(Sequence& sequence, const Tree& tree, const Segments& segments, StageId stage)
      : ReduceStage(sequence, tree, segments.count(), segments.largest_bytes(), stage) {}
  ReduceStage(Sequence& sequence, const Tree& tree, std::uint32_t count, std::uint64_t largest_bytes, StageId stage);

  /// `own` and `target` are of one segment. `target` may be `own`, or empty on ranks that keep no result. Returns the
  /// sum over this rank's subtree: `own` if it has no children, otherwise the target.
  Region run(std::uint32_t segment, Region own, Region target);

 private:
  Region slot(std::uint32_t segment, std::size_t index, Region like) const;

  Sequence& sequence_;
  Tree tree_;
  StageId stage_;
  std::uint32_t in_flight_;
  std::uint64_t slot_bytes_;
  Region scratch_;
};

}  // namespace penstock::collectives
