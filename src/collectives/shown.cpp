#include "collectives/shown.hpp"

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

void Shown::show(Region own) {
  keep(own);
  if (team_.size() > 1) sequence_.copy(own, sequence_.shared(own.size_bytes));
}

void Shown::expose(int peer) { sequence_.expose(peer, 0); }

void Shown::await(int peer) { sequence_.await(peer, 0); }

void Shown::exchange_with_all() {
  const int size = team_.size();
  for (int i = 1; i < size; ++i) expose((team_.rank + i) % size);
  for (int i = 1; i < size; ++i) await((team_.rank + i) % size);
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
