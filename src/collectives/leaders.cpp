#include "collectives/leaders.hpp"

#include <algorithm>

namespace penstock::collectives {
namespace {

constexpr std::uint64_t kTaskBytes = 64 << 10;    // of messages: below, a few copies cost less than agreeing on them
constexpr std::uint64_t kBatchBytes = 256 << 10;  // of a part
constexpr std::uint64_t kMaxTaskPieces = 32;

}  // namespace

Leaders::Leaders(Sequence& sequence, const Team& team, const Collective& what, int first, std::size_t most_slots,
                 std::uint32_t sides)
    : sequence_(sequence), team_(team), what_(what), by_node_(ranks_by_node(team, first)), slots_(most_slots) {
  std::size_t index = 0;
  for (std::size_t i = 0; i < by_node_.size(); ++i) {
    slots_ = std::min(slots_, by_node_[i].size());
    if (team.same_node(by_node_[i][0], team.rank)) index = i;
  }
  node_.ranks = by_node_[index];
  node_.self = static_cast<int>(std::ranges::find(node_.ranks, team.rank) - node_.ranks.begin());
  by_tasks_ = block_bytes(what) > kTaskBytes && shared_nodes(team, what);
  batches_ = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(block_bytes(what) / slots_ / kBatchBytes, 1, kMaxShares / sides));
  // A ring begins with the part of the data whose number is that of the node.
  first_batch_ = static_cast<std::uint32_t>(index * batches_ / by_node_.size());
}

Region Leaders::part(Region whole, std::size_t slot) const {
  return part_of(whole, what_.count, what_.item_bytes(), slots_, slot);
}

Region Leaders::piece(Region whole, std::size_t slot, std::uint32_t batch) const {
  const Region all = part(whole, slot);
  return part_of(all, all.size_bytes / what_.item_bytes(), what_.item_bytes(), batches_, batch);
}

Tree Leaders::tree(std::size_t slot) const {
  Group turned = node_;
  std::ranges::rotate(turned.ranks, turned.ranks.begin() + static_cast<std::ptrdiff_t>(slot));
  turned.self = (node_.self + node_.size() - static_cast<int>(slot)) % node_.size();
  return tree_of_node(team_, turned);
}

void Leaders::combine(Region own, Region into) {
  if (is_alone()) return;
  if (by_tasks_) {
    for (std::uint32_t i = 0; i < batches_; ++i) {
      const std::uint32_t batch = (first_batch_ + i) % batches_;
      for (std::size_t slot = 0; slot < slots_; ++slot)
        combine_on_node(sequence_, node_, what_, piece(own, slot, batch), piece(into, slot, batch),
                        {.segment = batch, .slot = slot, .most_pieces = kMaxTaskPieces / slots_});
      sequence_.share();
    }
    return;
  }
  for (std::size_t slot = 0; slot < slots_; ++slot) {
    ReduceStage up(sequence_, tree(slot), batches_, piece(own, slot, 0).size_bytes,
                   {.number = static_cast<std::uint32_t>(2 * slot)});
    for (std::uint32_t batch = 0; batch < batches_; ++batch)
      up.run(batch, piece(own, slot, batch), has_slot(slot) ? piece(into, slot, batch) : Region{});
  }
}

void Leaders::spread(Region data) {
  if (is_alone()) return;
  if (by_tasks_) {
    for (std::uint32_t i = 0; i < batches_; ++i) {
      const std::uint32_t batch = (first_batch_ + i) % batches_;
      for (std::size_t slot = 0; slot < slots_; ++slot)
        spread_on_node(sequence_, node_, what_, piece(data, slot, batch),
                       {.segment = batch, .slot = slot, .most_pieces = kMaxTaskPieces / slots_});
      sequence_.share();
    }
    return;
  }
  for (std::size_t slot = 0; slot < slots_; ++slot)
    for (std::uint32_t batch = 0; batch < batches_; ++batch)
      bcast_stage(sequence_, tree(slot), piece(data, slot, batch), batch,
                  {.number = static_cast<std::uint32_t>(2 * slot + 1)});
}

Plan allreduce_by_leaders(const Team& team, const Collective& what, std::string_view name, AllreduceExchange exchange,
                          std::size_t most_slots) {
  Sequence sequence("allreduce/" + std::string(name), team);
  Leaders leaders(sequence, team, what, 0, most_slots, 2);
  const Region own = contribution(team, what);
  const Region target = result(team, what);
  leaders.combine(own, target);
  for (std::size_t slot = 0; slot < leaders.slots(); ++slot) {
    if (!leaders.has_slot(slot)) continue;
    const Region into = leaders.part(target, slot);
    exchange(sequence, leaders.group(slot),
             {.own = leaders.is_alone() ? leaders.part(own, slot) : into,
              .target = into,
              .elements = into.size_bytes / what.item_bytes(),
              .element_bytes = what.item_bytes(),
              .segment_bytes = what.segment_bytes});
  }
  leaders.spread(target);
  return finish(std::move(sequence), team, what);
}

}  // namespace penstock::collectives
