#include "collectives/parts/staging.hpp"

#include <algorithm>
#include <utility>

#include "collectives/parts/blocks.hpp"
#include "collectives/parts/pieces.hpp"

namespace penstock::collectives {
namespace {

// The room of a rank on a node of many: below, segments would have more signals than data are worth.
constexpr std::uint64_t kLeastStagedBytes = 512;
constexpr std::uint32_t kMostSegments = 64;  // with default settings 32 MiB for sums of two ranks, 16 MiB for copies
constexpr std::uint64_t kMostShortSteps = 768;

/// Of a staging buffer: together, those in flight stay in the cache of the core that fills them.
std::uint64_t most_staged_bytes(const Team& team) { return team.core_cache_bytes / StagedSegments::kInFlight; }

/// The largest staging buffer that leaves room for those of another operation.
std::uint64_t room_bytes(const Team& team, std::uint32_t buffers) {
  const std::uint64_t bytes = team.shared_limit_bytes / 2 / StagedSegments::kInFlight / buffers / 64 * 64;
  return std::min(bytes, most_staged_bytes(team));
}

/// If some ranks only write and others only read, or each reads what the one before has written, a few segments let
/// them overlap: no more than are in flight, so that no staging buffer is waited for.
std::uint64_t default_segment_bytes(const Team& team, const Collective& collective, std::uint32_t parts) {
  const bool is_chain = is_prefix(collective.kind);
  if ((!is_rooted(collective.kind) && !is_chain) || parts > 1) return most_staged_bytes(team) * parts;
  const std::uint64_t readers = is_chain ? 1 : static_cast<std::uint64_t>(team.size()) - 1;
  const std::uint64_t bytes = block_bytes(collective);
  const std::uint64_t segments = std::min<std::uint64_t>(overlapping_pieces(bytes, readers), StagedSegments::kInFlight);
  return std::min((bytes + segments - 1) / segments, most_staged_bytes(team));
}

/// Of what a rank cuts into segments, if all blocks were as long as the longest one.
std::uint64_t elements_of_all(const Team& team, const Collective& collective) {
  const std::uint64_t longest = longest_block_bytes(team, collective) / collective.item_bytes();
  return is_reduce_scatter(collective.kind) ? longest * static_cast<std::uint64_t>(team.size()) : longest;
}

}  // namespace

StagedSegments::StagedSegments(const Team& team, const Collective& collective, std::uint32_t parts,
                               std::uint32_t buffers)
    : collective_(collective),
      element_bytes_(collective.item_bytes()),
      elements_(elements_of_all(team, collective)),
      parts_(parts) {
  if (elements_ == 0) return;
  const std::uint64_t most_elements = room_bytes(team, buffers) / element_bytes_ * parts;
  const std::uint64_t wanted_bytes = collective.segment_bytes == 0 ? default_segment_bytes(team, collective, parts)
                                     : is_reduce_scatter(collective.kind)
                                         ? std::min(collective.segment_bytes, most_staged_bytes(team)) * parts
                                         : collective.segment_bytes;
  const std::uint64_t wanted_elements = wanted_bytes / element_bytes_;
  // Limits the number of short segments: all plans together have steps for each segment and pair of ranks.
  const auto size = static_cast<std::uint64_t>(team.size());
  const std::uint64_t most_short = std::max<std::uint64_t>(2, kMostShortSteps / (size * size));
  const std::uint64_t least_elements = (elements_ + most_short - 1) / most_short;
  const std::uint64_t segment_elements = std::min(std::max(wanted_elements, least_elements), most_elements);
  count_ = static_cast<std::uint32_t>((elements_ + segment_elements - 1) / segment_elements);
  const std::uint64_t longest = (elements_ + count_ - 1) / count_;
  buffer_bytes_ = ((longest + parts - 1) / parts * element_bytes_ + 63) / 64 * 64;
}

std::uint64_t StagedSegments::elements(std::uint32_t segment) const {
  return elements_ / count_ + (segment < elements_ % count_ ? 1 : 0);
}

std::uint32_t StagedSegments::count(std::uint32_t index) const {
  if (is_reduce_scatter(collective_.kind) || collective_.kind == CollectiveKind::allgatherv)
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(count_, part_elements(collective_, static_cast<int>(index))));
  if (count_ == 0 || elements_ / count_ > index) return count_;
  return elements_ / count_ == index ? static_cast<std::uint32_t>(elements_ % count_) : 0;
}

Region StagedSegments::of(Region whole, std::uint32_t segment) const {
  return part_of(whole, whole.size_bytes / element_bytes_, element_bytes_, count_, segment);
}

Region StagedSegments::part(Region whole, std::uint32_t segment, std::uint32_t index) const {
  if (is_reduce_scatter(collective_.kind))
    return of(part_of_rank(whole, collective_, static_cast<int>(index)), segment);
  return part_of(of(whole, segment), elements(segment), element_bytes_, parts_, index);
}

Region StagingStream::buffer(std::uint32_t segment, std::uint64_t size_bytes) const {
  return {first_byte_ + segment % StagedSegments::kInFlight * buffer_bytes_, size_bytes, Buffer::shared};
}

void StagingStream::put(Sequence& sequence, std::uint32_t segment, Region from, std::span<const int> readers) const {
  if (from.size_bytes == 0) return;
  std::vector<StepId> free;
  if (segment >= StagedSegments::kInFlight)
    for (const int reader : readers)
      free.push_back(sequence.wait(reader, free_tag(segment - StagedSegments::kInFlight)));
  sequence.copy(from, buffer(segment, from.size_bytes), free);
  for (const int reader : readers) sequence.publish(buffer(segment, from.size_bytes), reader, full_tag(segment));
}

void StagingStream::get(Sequence& sequence, std::uint32_t segment, int writer, Region to) const {
  if (to.size_bytes == 0) return;
  sequence.wait(writer, full_tag(segment));
  const StepId read = sequence.read(buffer(segment, to.size_bytes), writer, to);
  if (segment + StagedSegments::kInFlight < segments_) sequence.publish({}, writer, free_tag(segment), {read});
}

StagedSums::StagedSums(Sequence& sequence, const Team& team, const Collective& collective, std::uint64_t most_bytes)
    : sequence_(sequence),
      team_(team),
      most_bytes_(most_bytes),
      landings_(sequence.scratch(kInFlight * most_bytes)),
      sums_(sequence.scratch(kInFlight * most_bytes)) {
  for (int rank = team.size() - 1; rank >= 0; --rank) order_.push_back(rank);
  // The first contribution is copied into the sum; if it is another rank's, this rank's own needs no copy. Only one
  // rank combines a part, so all ranks get the same bits even if swapped operands give others (two NaNs, zeros of two
  // signs).
  if (collective.commutative && order_.front() == team.rank) std::swap(order_[0], order_[1]);
}

namespace {

bool fit_on_node(const Team& team, const Collective& collective, std::uint32_t parts, std::uint32_t buffers) {
  if (team.size() < 2 || node_count(team) > 1) return false;
  if (room_bytes(team, buffers) < std::max<std::uint64_t>(kLeastStagedBytes, collective.item_bytes())) return false;
  return StagedSegments(team, collective, parts, buffers).count() <= kMostSegments;
}

}  // namespace

bool node_staging(const Team& team, const Collective& collective) {
  const auto size = static_cast<std::uint32_t>(team.size());
  const bool differ = collective.kind == CollectiveKind::scatter || collective.kind == CollectiveKind::alltoall ||
                      is_reduce_scatter(collective.kind);
  const std::uint32_t parts = computes(collective.kind) ? size : 1;
  return fit_on_node(team, collective, parts, differ ? size - 1 : parts);
}

bool node_whole_staging(const Team& team, const Collective& collective) { return fit_on_node(team, collective, 1, 1); }

std::vector<int> others(const Team& team, int rank) {
  std::vector<int> ranks;
  for (int i = 1; i < team.size(); ++i) ranks.push_back((rank + i) % team.size());
  return ranks;
}

}  // namespace penstock::collectives
