#include "collectives/parts/leaders.hpp"

#include <algorithm>
#include <array>

#include "plan/region.hpp"

namespace penstock::collectives {
namespace {

constexpr std::uint64_t kChunkBytes = 64 << 10;  // of a slot: shorter ones have too many messages
constexpr std::uint64_t kMostChunks = 16;        // with kMaxTaskGroups / 2 batches each, within kStageTags

}  // namespace

std::uint64_t chunks_of(const Team& team, const Collective& collective) {
  return chunks_of(collective, std::ranges::min(sizes_of_nodes(team)));
}

std::uint64_t chunks_of(const Collective& collective, int smallest) {
  const std::uint64_t slots = std::min(kManySlots, static_cast<std::size_t>(smallest));
  const std::uint64_t most = std::clamp<std::uint64_t>(collective.count, 1, kMostChunks);
  if (collective.segment_bytes != 0) return pieces_of(block_bytes(collective), collective.segment_bytes, most);
  return std::min(most, std::max<std::uint64_t>(2, pieces_of(block_bytes(collective), slots * kChunkBytes, most)));
}

TaskBatches task_batches(std::uint64_t slot_bytes, std::uint64_t nodes, std::uint32_t sides) {
  const std::uint64_t most = kMaxTaskGroups / sides;
  if (nodes > most || slot_bytes / nodes < kTaskBytes)
    return {.cuts = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(slot_bytes / kLeaderBatchBytes, 1, most))};
  const std::uint64_t subs = std::clamp<std::uint64_t>(slot_bytes / nodes / kTaskBytes, 1, most / nodes);
  return {.cuts = static_cast<std::uint32_t>(nodes), .subs = static_cast<std::uint32_t>(subs), .follow_ring = true};
}

Leaders::Leaders(Sequence& sequence, const Team& team, const Collective& collective, int first, std::size_t most_slots,
                 std::uint32_t sides, bool by_messages, std::uint32_t first_segment)
    : sequence_(sequence),
      team_(team),
      collective_(collective),
      by_node_(ranks_by_node(team, first)),
      first_segment_(first_segment),
      slots_(most_slots) {
  std::size_t index = 0;
  for (std::size_t i = 0; i < by_node_.size(); ++i) {
    slots_ = std::min(slots_, by_node_[i].size());
    if (team.same_node(by_node_[i][0], team.rank)) index = i;
  }
  node_.ranks = by_node_[index];
  node_.self = static_cast<int>(std::ranges::find(node_.ranks, team.rank) - node_.ranks.begin());
  by_tasks_ = !by_messages && block_bytes(collective) > kTaskBytes && shared_nodes(team, collective);
  const std::uint64_t most = kMaxTaskGroups / sides;
  const std::uint64_t nodes = by_node_.size();
  const std::uint64_t bytes = block_bytes(collective) / slots_;
  if (by_tasks_) {
    const TaskBatches batches = task_batches(bytes, nodes, sides);
    cuts_ = batches.cuts;
    subs_ = batches.subs;
    follows_ring_ = batches.follow_ring;
  } else if (block_bytes(collective) > kTaskBytes) {
    cuts_ = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(bytes / kLeaderBatchBytes, 1, most));
  } else {
    cuts_ = static_cast<std::uint32_t>(pieces_of(bytes, segment_bytes(), most));
  }
  // The ring first sends the parts of this node and of the previous one, then continues downwards. The part of the next
  // node is complete first.
  const std::uint32_t here = static_cast<std::uint32_t>(index * cuts_ / nodes);
  const auto behind = [&](std::uint32_t cut, std::uint32_t batch) { return (cut + cuts_ - batch / subs_) % cuts_; };
  for (std::uint32_t batch = 0; batch < cuts_ * subs_; ++batch) to_combine_.push_back(batch);
  to_spread_ = to_combine_;
  std::ranges::sort(to_combine_, {}, [&](std::uint32_t batch) {
    const std::uint32_t steps = behind(here, batch);
    return std::array{std::max(steps, 1u), batch % subs_, steps};
  });
  std::ranges::sort(to_spread_, {}, [&](std::uint32_t batch) {
    return std::array{behind(here + 1, batch), batch % subs_};
  });
}

std::uint64_t Leaders::segment_bytes() const {
  // Short segments overlap with the work inside the nodes, if there is any.
  const bool all_lead = by_node_.size() == static_cast<std::size_t>(team_.size());
  if (collective_.segment_bytes != 0 || block_bytes(collective_) > kTaskBytes || all_lead)
    return collective_.segment_bytes;
  return team_.message_bytes;
}

Region Leaders::part(Region whole, std::size_t slot) const {
  return part_of(whole, collective_.count, collective_.item_bytes(), slots_, slot);
}

Region Leaders::piece(Region whole, std::size_t slot, std::uint32_t batch) const {
  const Region all = part(whole, slot);
  const Region cut =
      part_of(all, all.size_bytes / collective_.item_bytes(), collective_.item_bytes(), cuts_, batch / subs_);
  return part_of(cut, cut.size_bytes / collective_.item_bytes(), collective_.item_bytes(), subs_, batch % subs_);
}

Tree Leaders::tree(std::size_t slot) const {
  Group turned = node_;
  std::ranges::rotate(turned.ranks, turned.ranks.begin() + static_cast<std::ptrdiff_t>(slot));
  turned.self = (node_.self + node_.size() - static_cast<int>(slot)) % node_.size();
  return tree_of_node(team_, turned);
}

void Leaders::combine(Region own, Region into) {
  combine_later(own, into);
  combine_rest();
}

void Leaders::combine_later(Region own, Region into) {
  own_ = own;
  into_ = into;
  if (is_alone()) combined_ = to_combine_.size();
}

void Leaders::combine_next(StepId after) {
  const std::uint32_t batch = to_combine_[combined_++];
  for (std::size_t slot = 0; slot < slots_; ++slot)
    combine_on_node(sequence_, node_, collective_, piece(own_, slot, batch), piece(into_, slot, batch),
                    {.segment = batch, .slot = slot, .most_pieces = kMaxBatchTasks / slots_});
  sequence_.publish_tasks({after});
}

void Leaders::prepare(Region used, StepId sent) {
  if (!follows_ring_) return combine_rest();
  std::size_t needed = to_combine_.size();
  while (needed > combined_ &&
         !plan::overlap(used, piece(into_, static_cast<std::size_t>(node_.self), to_combine_[needed - 1])))
    --needed;
  if (needed == combined_) return;
  while (combined_ < std::min(needed + kBatchesAhead, to_combine_.size())) combine_next(sent);
}

void Leaders::combine_rest() {
  if (by_tasks_) {
    while (combined_ < to_combine_.size()) combine_next(Sequence::kNone);
    return;
  }
  if (combined_ == to_combine_.size()) return;
  for (std::size_t slot = 0; slot < slots_; ++slot) {
    ReduceStage up(sequence_, tree(slot), static_cast<std::uint32_t>(to_combine_.size()),
                   piece(own_, slot, 0).size_bytes, {.number = static_cast<std::uint32_t>(2 * slot)});
    for (std::uint32_t batch = 0; batch < to_combine_.size(); ++batch)
      up.run(first_segment_ + batch, piece(own_, slot, batch), has_slot(slot) ? piece(into_, slot, batch) : Region{});
  }
  combined_ = to_combine_.size();
}

void Leaders::spread(Region data) {
  if (is_alone()) return;
  if (by_tasks_) {
    for (const std::uint32_t batch : to_spread_) {
      for (std::size_t slot = 0; slot < slots_; ++slot)
        spread_on_node(sequence_, node_, collective_, piece(data, slot, batch),
                       {.segment = batch, .slot = slot, .most_pieces = kMaxBatchTasks / slots_});
      sequence_.publish_tasks();
    }
    return;
  }
  for (std::size_t slot = 0; slot < slots_; ++slot)
    for (std::uint32_t batch = 0; batch < to_spread_.size(); ++batch)
      bcast_stage(sequence_, tree(slot), piece(data, slot, batch), first_segment_ + batch,
                  {.number = static_cast<std::uint32_t>(2 * slot + 1)});
}

}  // namespace penstock::collectives
