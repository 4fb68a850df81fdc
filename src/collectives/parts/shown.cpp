#include "collectives/parts/shown.hpp"

#include <utility>

namespace penstock::collectives {

std::uint64_t shown_bytes(const Team& team, const Collective& what) {
  switch (what.kind) {
    case CollectiveKind::barrier: return 0;
    case CollectiveKind::alltoall:
    case CollectiveKind::scatter:
    case CollectiveKind::reduce_scatter_block: return block_bytes(what) * static_cast<std::uint64_t>(team.size());
    default: return block_bytes(what);
  }
}

Shown::Shown(std::string algorithm, const Team& team, const Collective& what)
    : team_(team), what_(what), sequence_(std::move(algorithm), team) {
  if (team.size() > 1 && shown_bytes(team, what) <= kFlaggedBytes) sequence_.by_flags();
}

void Shown::show(Region own, int first, int count) {
  own_ = own;
  if (count == 0) return;
  sequence_.copy(own, sequence_.shared(own.size_bytes));
  for (int i = 0; i < count; ++i) sequence_.expose((first + i) % team_.size(), 0);
}

void Shown::await(int first, int count) {
  for (int i = 0; i < count; ++i) sequence_.await((first + i) % team_.size(), 0);
}

void Shown::to_all(Region own) {
  const int others = team_.size() - 1;
  show(own, team_.rank + 1, others);
  await(team_.rank + 1, others);
}

void Shown::to_root(Region own) {
  const bool is_root = team_.rank == what_.root;
  show(own, what_.root, is_root ? 0 : 1);
  await(what_.root + 1, is_root ? team_.size() - 1 : 0);
}

void Shown::from_root(Region own) {
  const bool is_root = team_.rank == what_.root;
  show(own, what_.root + 1, is_root ? team_.size() - 1 : 0);
  await(what_.root, is_root ? 0 : 1);
}

void Shown::to_higher(Region own) {
  show(own, team_.rank + 1, team_.size() - 1 - team_.rank);
  await(0, team_.rank);
}

void Shown::take(int rank, std::uint64_t offset_bytes, Region to) {
  if (rank == team_.rank)
    sequence_.copy({own_.offset_bytes + offset_bytes, to.size_bytes, own_.buffer}, to);
  else
    sequence_.read({offset_bytes, to.size_bytes, Buffer::shared}, rank, to);
}

void Shown::combine(int count, std::uint64_t offset_bytes, Region to) {
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

Plan Shown::finish() && { return collectives::finish(std::move(sequence_), team_, what_); }

}  // namespace penstock::collectives
