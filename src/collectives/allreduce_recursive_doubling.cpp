// All pairs at distance 1, 2, 4, … exchange and combine what they have. Ranks beyond the largest power of two give
// their contribution to a neighbour first and get the result from it at the end (Thakur, Rabenseifner and Gropp 2005).
// Cost: floor(log2 n) rounds of m bytes, 2 more unless n is a power of two. Valid for every team and size; for short
// messages. Partners at short distances are on the same node.
#include <bit>

#include "collectives/stage.hpp"

namespace penstock::collectives {
namespace {

// Positions 0 .. 2*extra-1 fold in pairs, the odd one staying; the others stay as they are.
struct Fold {
  int extra;

  bool leaves(int position) const { return position < 2 * extra && position % 2 == 0; }
  bool absorbs(int position) const { return position < 2 * extra && position % 2 == 1; }
  int folded(int position) const { return position < 2 * extra ? position / 2 : position - extra; }
  int position(int folded) const { return folded < extra ? 2 * folded + 1 : folded + extra; }
};

}  // namespace

Plan allreduce_recursive_doubling(const Team& team, const Collective& what) {
  constexpr std::uint32_t kFoldTag = 0;
  constexpr std::uint32_t kResultTag = 1;
  constexpr std::uint32_t kFirstRoundTag = 2;
  const Group group = by_node(team, 0);
  const int full = static_cast<int>(std::bit_floor(static_cast<unsigned>(group.size())));
  const Fold fold{group.size() - full};
  const int self = group.self;
  const Region target = result(team, what);
  Sequence sequence("allreduce/recursive_doubling", team);
  Accumulator sum(contribution(team, what), target);

  if (fold.leaves(self)) {
    sequence.send(sum.value(), group[self + 1], kFoldTag);
    sequence.recv(target, group[self + 1], kResultTag);
    return finish(std::move(sequence), team, what);
  }
  // Two landing places take turns, so that the next message can arrive while this one is being added.
  Region landing[2];
  for (Region& region : landing) region = group.size() > 1 ? sequence.scratch(target.size_bytes) : Region{};
  int turn = 0;
  if (fold.absorbs(self)) sum.add(sequence, group[self - 1], kFoldTag, landing[turn++ % 2]);
  const int folded = fold.folded(self);
  std::uint32_t tag = kFirstRoundTag;
  for (int distance = 1; distance < full; distance *= 2, ++tag) {
    const int peer = group[fold.position(folded ^ distance)];
    sequence.send(sum.value(), peer, tag);
    sum.add(sequence, peer, tag, landing[turn++ % 2]);
  }
  sequence.copy(sum.value(), target);
  if (fold.absorbs(self)) sequence.send(target, group[self - 1], kResultTag);
  return finish(std::move(sequence), team, what);
}

}  // namespace penstock::collectives
