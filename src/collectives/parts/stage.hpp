// The parts that algorithms are composed of: one segment, moved or combined along one tree.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/parts/arguments.hpp"
#include "collectives/parts/group.hpp"
#include "plan/eager.hpp"

namespace penstock::collectives {

using plan::kEagerBytes;                            // the length of segments, unless the caller asks for another
inline constexpr std::uint32_t kMaxSegments = 320;  // bounds the length of plans, and with kStageTags the tags
inline constexpr std::uint32_t kStageTags = 512;    // a stage with number k uses the tags [k, k+1) * kStageTags

/// The cut of a buffer of `collective` into pipeline segments of whole elements, sizes differing by one element at
/// most.
class Segments {
 public:
  /// Segments of collective.segment_bytes, or else `default_bytes`, but no more than `most` (at most kStageTags) of
  /// them.
  Segments(const Collective& collective, std::uint64_t default_bytes, std::uint32_t most);
  explicit Segments(const Collective& collective) : Segments(collective, kEagerBytes, kMaxSegments) {}

  std::uint32_t count() const { return count_; }
  std::uint64_t largest_bytes() const { return (elements_ + count_ - 1) / count_ * element_bytes_; }
  Region of(Region whole, std::uint32_t segment) const;
  /// `many` neighbouring segments as one.
  Region of(Region whole, std::uint32_t first, std::uint32_t many) const;

 private:
  std::uint64_t elements_;
  std::uint64_t element_bytes_;
  std::uint32_t count_ = 1;
};

/// Into how many pieces `bytes` are cut, for none to be longer than `segment_bytes` (0: kEagerBytes), but `most` of
/// them at most, and one at least.
std::uint64_t pieces_of(std::uint64_t bytes, std::uint64_t segment_bytes, std::uint64_t most);

/// Part `index` of `parts` of a buffer of `elements` elements; sizes differ by one element at most.
Region part_of(Region whole, std::uint64_t elements, std::uint64_t element_bytes, std::uint64_t parts,
               std::uint64_t index);

/// Where a stage stands in its plan: numbers its tags, and its levels continue those of the tree above.
struct StageId {
  std::uint32_t number = 0;
  int levels_above = 0;

  std::uint32_t tag(std::uint32_t segment) const { return number * kStageTags + segment; }
};

/// `data`, of one segment, goes from the root of the tree to everyone. Ranks outside of the tree do not call it.
void bcast_stage(Sequence& sequence, const Tree& tree, Region data, std::uint32_t segment, StageId stage);

/// The runs of consecutive ranks among the indices [first, first + count) of a group, in the order of the group.
std::vector<Run> runs_of(const Group& group, int first, int count);

/// Empty messages after which every rank of the group knows that all have come as far as `after`. Returns the step
/// that stands for this knowledge (kNone in a group of one that waits for nothing).
StepId dissemination_stage(Sequence& sequence, const Group& group, std::uint32_t first_tag, StepId after);

/// A result of reduction that grows by the contributions of peers. It starts as this rank's own contribution, wherever
/// that lies, and comes to lie in `target` with the first addition, without a copy.
class Accumulator {
 public:
  Accumulator(Region own, Region target) : own_(own), target_(target), is_in_target_(own == target) {}

  /// Where the sum lies now.
  Region value() const { return is_in_target_ ? target_ : own_; }
  /// Receives a contribution and adds it. `landing` (as large) is used unless the target is still free.
  void add(Sequence& sequence, int peer, std::uint32_t tag, Region landing);

 private:
  // Not one region that changes: GCC 12 loses the assignment where it inlines both ends of it.
  Region own_;
  Region target_;
  bool is_in_target_;
};

/// Combines the segments of all ranks of a tree into the root's target. Scratch memory for a few segments in flight.
class ReduceStage {
 public:
  ReduceStage(Sequence& sequence, const Tree& tree, const Segments& segments, StageId stage)
      : ReduceStage(sequence, tree, segments.count(), segments.largest_bytes(), stage) {}
  ReduceStage(Sequence& sequence, const Tree& tree, std::uint32_t count, std::uint64_t largest_bytes, StageId stage);

  /// `own` and `target` of one segment; `target` may be `own`, or empty on ranks that keep no result. Returns where
  /// the sum over this rank's subtree lies: in `own` if it has no children, else in the target.
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
