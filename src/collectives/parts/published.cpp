#include "collectives/parts/published.hpp"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "collectives/parts/blocks.hpp"

namespace penstock::collectives {

std::uint64_t published_bytes(const Team& team, const Collective& collective) {
  switch (collective.kind) {
    case CollectiveKind::barrier: return 0;
    case CollectiveKind::alltoall:
    case CollectiveKind::scatter:
    case CollectiveKind::reduce_scatter_block: return block_bytes(collective) * static_cast<std::uint64_t>(team.size());
    case CollectiveKind::neighbor_alltoall: {
      std::size_t degree = 0;
      for (int rank = 0; rank < team.size(); ++rank)
        degree = std::max(degree, collective.graph->destinations(rank).size());
      return block_bytes(collective) * degree;
    }
    default: return longest_block_bytes(team, collective);
  }
}

bool small_neighborhood(const Team& team, const Collective& collective) {
  return collective.graph != nullptr && small_on_one_node(team, collective) &&
         published_bytes(team, collective) <= kSharedBytesPerRank;
}

Published::Published(std::string algorithm, const Team& team, const Collective& collective)
    : team_(team), collective_(collective), sequence_(std::move(algorithm), team) {
  if (team.size() > 1 && published_bytes(team, collective) <= kFlaggedBytes) sequence_.by_flags();
}

void Published::publish(Region own, int first, int count) {
  own_ = own;
  if (count == 0) return;
  sequence_.copy(own, sequence_.shared(own.size_bytes));
  for (int i = 0; i < count; ++i) sequence_.signal((first + i) % team_.size(), 0);
}

void Published::wait(int first, int count) {
  for (int i = 0; i < count; ++i) sequence_.wait((first + i) % team_.size(), 0);
}

void Published::to_all(Region own) {
  const int others = team_.size() - 1;
  publish(own, team_.rank + 1, others);
  wait(team_.rank + 1, others);
}

void Published::to_root(Region own) {
  const bool is_root = team_.rank == collective_.root;
  publish(own, collective_.root, is_root ? 0 : 1);
  wait(collective_.root + 1, is_root ? team_.size() - 1 : 0);
}

void Published::from_root(Region own) {
  const bool is_root = team_.rank == collective_.root;
  publish(own, collective_.root + 1, is_root ? team_.size() - 1 : 0);
  wait(collective_.root, is_root ? 0 : 1);
}

void Published::to_higher(Region own) {
  publish(own, team_.rank + 1, team_.size() - 1 - team_.rank);
  wait(0, team_.rank);
}

void Published::to_neighbors(Region own) {
  own_ = own;
  const auto others = [&](std::span<const Neighbor> neighbors) {
    std::set<int> ranks;  // one flag for all edges between two ranks
    for (const Neighbor& each : neighbors)
      if (each.rank != Neighbor::kNone && each.rank != team_.rank) ranks.insert(each.rank);
    return ranks;
  };
  const std::set<int> readers = others(destinations_of(team_, collective_));
  if (!readers.empty()) sequence_.copy(own, sequence_.shared(own.size_bytes));
  for (const int rank : readers) sequence_.signal(rank, 0);
  for (const int rank : others(sources_of(team_, collective_))) sequence_.wait(rank, 0);
}

void Published::take(int rank, std::uint64_t offset_bytes, Region to) {
  if (rank == team_.rank)
    sequence_.copy({own_.offset_bytes + offset_bytes, to.size_bytes, own_.buffer}, to);
  else
    sequence_.read({offset_bytes, to.size_bytes, Buffer::shared}, rank, to);
}

void Published::combine(int count, std::uint64_t offset_bytes, Region to) {
  if (count == 0 || to.size_bytes == 0) return;
  Region mine{own_.offset_bytes + offset_bytes, to.size_bytes, own_.buffer};
  const bool overwritten = mine.buffer == to.buffer && mine.offset_bytes < to.offset_bytes + to.size_bytes &&
                           to.offset_bytes < mine.offset_bytes + mine.size_bytes;
  if (overwritten && team_.rank < count - 1) {
    const Region kept = sequence_.scratch(to.size_bytes);
    sequence_.copy(mine, kept);
    mine = kept;
  }
  take(count - 1, offset_bytes, to);
  for (int rank = count - 2; rank >= 0; --rank) {
    Region part = mine;
    if (rank != team_.rank) {
      part = sequence_.scratch(to.size_bytes);
      take(rank, offset_bytes, part);
    }
    sequence_.reduce(part, to);
  }
}

Plan Published::finish() && { return collectives::finish(std::move(sequence_), team_, collective_); }

}  // namespace penstock::collectives
