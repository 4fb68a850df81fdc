#include "collectives/parts/stage.hpp"

#include <algorithm>

namespace penstock::collectives {

Segments::Segments(const Collective& collective, std::uint64_t default_bytes, std::uint32_t most)
    : elements_(collective.count), element_bytes_(collective.item_bytes()) {
  count_ = static_cast<std::uint32_t>(
      pieces_of(elements_ * element_bytes_, collective.segment_bytes != 0 ? collective.segment_bytes : default_bytes,
                std::min<std::uint64_t>(most, elements_)));
}

std::uint64_t pieces_of(std::uint64_t bytes, std::uint64_t segment_bytes, std::uint64_t most) {
  const std::uint64_t longest = segment_bytes != 0 ? segment_bytes : kEagerBytes;
  const std::uint64_t wanted = bytes / longest + (bytes % longest != 0);
  return std::clamp<std::uint64_t>(wanted, 1, std::max<std::uint64_t>(1, most));
}

Region part_of(Region whole, std::uint64_t elements, std::uint64_t element_bytes, std::uint64_t parts,
               std::uint64_t index) {
  const auto first = [&](std::uint64_t i) { return elements / parts * i + std::min(elements % parts, i); };
  const std::uint64_t begin = first(index);
  return {whole.offset_bytes + begin * element_bytes, (first(index + 1) - begin) * element_bytes, whole.buffer};
}

Region Segments::of(Region whole, std::uint32_t segment) const {
  return part_of(whole, elements_, element_bytes_, count_, segment);
}

Region Segments::of(Region whole, std::uint32_t first, std::uint32_t many) const {
  if (many == 0) return {whole.offset_bytes, 0, whole.buffer};
  const Region begin = of(whole, first);
  const Region last = of(whole, first + many - 1);
  return {begin.offset_bytes, last.offset_bytes + last.size_bytes - begin.offset_bytes, whole.buffer};
}

void bcast_stage(Sequence& sequence, const Tree& tree, Region data, std::uint32_t segment, StageId stage) {
  if (tree.parent >= 0)
    sequence.at(stage.levels_above + tree.parent_level, segment).recv(data, tree.parent, stage.tag(segment));
  for (const Tree::Edge& child : tree.children)
    sequence.at(stage.levels_above + child.level, segment).send(data, child.rank, stage.tag(segment));
}

std::vector<Run> runs_of(const Group& group, int first, int count) {
  std::vector<Run> runs;
  for (int i = first; i < first + count; ++i) {
    if (!runs.empty() && runs.back().first + runs.back().count == group[i])
      ++runs.back().count;
    else
      runs.push_back({group[i], 1});
  }
  return runs;
}

StepId dissemination_stage(Sequence& sequence, const Group& group, int radix, std::uint32_t first_tag, StepId after) {
  const int size = group.size();
  std::uint32_t tag = first_tag;
  int distance = 1;
  for (const int each : radices_of(size, radix)) {
    const int end = static_cast<int>(std::min<std::int64_t>(size, std::int64_t{distance} * each));
    for (int ahead = distance; ahead < end; ahead += distance)
      sequence.empty_send(group[(group.self + ahead) % size], tag, {after});
    // A chain, so that the last one stands for all of them.
    for (int behind = distance; behind < end; behind += distance)
      after = sequence.empty_recv(group[(group.self + size - behind) % size], tag, {after});
    distance = end;
    ++tag;
  }
  return after;
}

void Accumulator::add(Sequence& sequence, int peer, std::uint32_t tag, Region landing) {
  if (is_in_target_) {
    sequence.recv(landing, peer, tag);
    sequence.reduce(landing, target_);
  } else {
    sequence.recv(target_, peer, tag);
    sequence.reduce(own_, target_);
    is_in_target_ = true;
  }
}

ReduceStage::ReduceStage(Sequence& sequence, const Tree& tree, std::uint32_t count, std::uint64_t largest_bytes,
                         StageId stage)
    : sequence_(sequence),
      tree_(tree),
      stage_(stage),
      in_flight_(std::min(count, kStageInFlight)),
      slot_bytes_((largest_bytes + 63) / 64 * 64) {
  // For each segment in flight: one receive slot per child, and one slot for the sum.
  if (!tree_.children.empty()) scratch_ = sequence_.scratch(in_flight_ * slot_bytes_ * (tree_.children.size() + 1));
}

Region ReduceStage::slot(std::uint32_t segment, std::size_t index, Region like) const {
  const std::uint64_t number = segment % in_flight_ * (tree_.children.size() + 1) + index;
  return {scratch_.offset_bytes + number * slot_bytes_, like.size_bytes, Buffer::scratch};
}

Region ReduceStage::run(std::uint32_t segment, Region own, Region target) {
  if (target.size_bytes == 0 && !tree_.children.empty()) target = slot(segment, tree_.children.size(), own);
  Accumulator sum(own, target);
  for (std::size_t i = tree_.children.size(); i-- > 0;) {  // the smallest subtree completes first
    const Tree::Edge& child = tree_.children[i];
    sequence_.at(stage_.levels_above + child.level, segment);
    sum.add(sequence_, child.rank, stage_.tag(segment), slot(segment, i, own));
  }
  if (tree_.parent >= 0) {
    sequence_.at(stage_.levels_above + tree_.parent_level, segment);
    sequence_.send(sum.value(), tree_.parent, stage_.tag(segment));
  }
  return sum.value();
}

}  // namespace penstock::collectives
