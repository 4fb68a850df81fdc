#include "collectives/cost/leader_parts.hpp"

#include <utility>

#include "collectives/parts/arguments.hpp"
#include "collectives/parts/leaders.hpp"

namespace penstock::collectives::cost {
namespace {

constexpr std::uint64_t kMostBatches = kMaxTaskGroups / 2;  // inside the nodes, up and down
constexpr int kFollowedSlots = 4;                           // by groups
constexpr std::uint64_t kNotShort = 1 << 10;                // several leaders may share it

}  // namespace

std::vector<RoundOfParts> rounds_of_parts(int size, std::span<const int> radices) {
  std::vector<RoundOfParts> rounds;
  for (const int radix : radices) {
    const int parts = std::min(radix, size);
    if (parts > 1) rounds.push_back({parts - 1, log2_ceil(parts), size % parts != 0});
    size = (size + parts - 1) / parts;
  }
  std::ranges::reverse(rounds);
  return rounds;
}

LeaderParts::LeaderParts(const Call& call, const Shape& shape)
    : single_copy_(call.team.single_copy),
      among_(shape.among),
      nodes_(shape.nodes),
      ranks_(shape.ranks),
      slots_(shape.slots),
      extras_(shape.nodes),
      item_bytes_(call.collective.item_bytes()),
      goes_up_(!shape.is_alone),
      goes_down_(!shape.is_alone && call.collective.kind == CollectiveKind::allreduce),
      is_to_one_(call.collective.kind == CollectiveKind::reduce && extras_.extra == 0) {
  const auto [nodes, ranks, slots, among, chunks, is_alone, in_segments_of, by_groups, domains] = shape;
  const std::uint64_t bytes = block_bytes(call.collective) / chunks;
  const std::uint64_t given = chunks > 1 ? 0 : call.collective.segment_bytes;
  part_bytes_ = std::max(bytes / static_cast<std::uint64_t>(slots), item_bytes_);
  const bool is_short = bytes <= kTaskBytes;
  const std::uint64_t inside = given != 0 || !is_short || ranks == 1 ? given : call.team.message_bytes;
  const std::uint64_t most_batches = call.collective.kind == CollectiveKind::allreduce ? kMostBatches : kMaxTaskGroups;
  if (goes_up_)
    batches_ = static_cast<int>(is_short ? pieces_of(part_bytes_, inside, most_batches / chunks)
                                         : std::clamp<std::uint64_t>(part_bytes_ / kLeaderBatchBytes, 1, most_batches));
  batch_bytes_ = part_bytes_ / static_cast<std::uint64_t>(batches_);
  if (among == Among::multiplying) radices_ = radices_of(nodes, call.collective.radix);
  std::uint64_t segment = chunks > 1 ? std::max({inside, plan::kEagerBytes, part_bytes_ / 16}) : inside;
  if (call.collective.kind == CollectiveKind::reduce) segment = given;
  const auto parts = static_cast<std::uint64_t>(among == Among::ring ? nodes : extras_.full);
  switch (among) {
    case Among::doubling: {
      const auto rounds = static_cast<std::uint64_t>(std::max(1, log2_ceil(extras_.full)));
      streams_ = pieces_of(part_bytes_, segment, std::max(kMaxExchangeSegments, kMaxExchangePieces / rounds));
      smallest_bytes_ = part_bytes_;
      break;
    }
    case Among::multiplying:
      streams_ = pieces_of(part_bytes_, segment, most_multiplying_segments(radices_));
      smallest_bytes_ = part_bytes_;
      break;
    case Among::halving:
      streams_ = pieces_of(part_bytes_ / 2, segment, kMaxExchangeSegments);
      smallest_bytes_ = part_bytes_ / parts;
      break;
    case Among::ring:
      streams_ =
          pieces_of(part_bytes_ / parts, segment, kMaxExchangePieces / static_cast<std::uint64_t>(in_segments_of));
      smallest_bytes_ = part_bytes_ / parts;
  }
  // With nothing to do inside the nodes, all chunks are exchanged at once.
  if (ranks == 1) {
    part_bytes_ *= chunks;
    streams_ *= chunks;
    drifts_ = chunks == 1;
  }
  tree_ranks_ = ranks;
  tree_slots_ = slots;
  if (domains > 1) {
    tree_ranks_ = (ranks + domains - 1) / domains;
    levels_above_ = log2_ceil(domains);
    others_ = slots > 1 ? std::max(1, slots - std::max(0, slots - (domains - 1) * tree_ranks_)) : 1;
  }
  if (!by_groups) return;
  by_groups_ = true;
  const int group = (slots + kFollowedSlots - 1) / kFollowedSlots;
  slots_ = (slots + group - 1) / group;
  weight_ = static_cast<double>(slots) / slots_;
  ranks_ = 1;
}

void LeaderParts::keep_first(std::size_t count) {
  const std::size_t all = in_turns();
  const auto share = [&](std::size_t many) { return (many * count + all - 1) / all; };
  part_bytes_ = part_bytes_ * count / all;
  streams_ = share(streams_);
  batches_ = static_cast<int>(share(static_cast<std::size_t>(batches_)));
  batch_bytes_ = part_bytes_ / static_cast<std::uint64_t>(batches_);
}

double LeaderParts::drift() const {
  if (among_ == Among::multiplying && slots_ > 1) return 1.12;
  // Of several leaders, which may be better, estimates are a little long.
  if (among_ == Among::multiplying) return by_groups_ && tree_ranks_ > 1 && part_bytes_ >= kNotShort ? 1.08 : 1;
  if (streams_ == 1 || among_ == Among::ring || !drifts_) return 1;
  if (among_ == Among::halving) return extras_.extra == 0 ? (is_to_one_ ? 1 : 1.05) : tree_ranks_ == 1 ? 1.18 : 1.12;
  return has_pairs() ? 1.08 : 1;
}

}  // namespace penstock::collectives::cost
