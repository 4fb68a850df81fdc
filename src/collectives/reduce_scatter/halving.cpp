// reduce_scatter and reduce_scatter_block: ranks at distance n/2, n/4, … send each other the half of the parts that the
// partner keeps. Ranks beyond the largest power of two first send everything to a neighbour, which sends them their
// part at the end (Thakur, Rabenseifner and Gropp 2005). Cost: floor(log2 n) rounds, m * (n - 1) bytes, 2 rounds more
// unless n is a power of two. Valid for every team and size; for short parts.
#include <bit>

#include "collectives/parts/blocks.hpp"

namespace penstock::collectives {
namespace {

constexpr std::uint32_t kExtraTag = 0;
constexpr std::uint32_t kResultTag = 1;
constexpr std::uint32_t kFirstRoundTag = 2;

// Of the ranks 0 .. 2*extra-1 the odd ones stay and combine for their even neighbour too. kept_index numbers the ranks
// that stay; each stands for one or two consecutive parts.
struct NeighbourExtras {
  int extra;

  bool leaves(int rank) const { return rank < 2 * extra && rank % 2 == 0; }
  bool absorbs(int rank) const { return rank < 2 * extra && rank % 2 == 1; }
  int kept_index(int rank) const { return rank < 2 * extra ? rank / 2 : rank - extra; }
  int rank(int kept_index) const { return kept_index < extra ? 2 * kept_index + 1 : kept_index + extra; }
  int first(int kept_index) const { return kept_index < extra ? 2 * kept_index : kept_index + extra; }
  Run parts(int from, int to) const { return {first(from), first(to) - first(from)}; }
};

}  // namespace

Plan reduce_parts_halving(const std::string& algorithm, const Team& team, const Collective& collective) {
  const int size = team.size();
  const int full = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  const NeighbourExtras extras{size - full};
  const int rank = team.rank;
  const Region own = contribution(team, collective);
  const Region target = result(team, collective);
  Sequence sequence(algorithm, team);
  if (extras.leaves(rank)) {
    sequence.send(own, rank + 1, kExtraTag);
    sequence.recv(target, rank + 1, kResultTag);
    return finish(std::move(sequence), team, collective);
  }
  Region value = own;  // the region of this rank's sums
  Region sums = size > 1 ? sequence.scratch(own.size_bytes) : own;
  const auto receive = [&](Run run, int peer, std::uint32_t tag) {
    const Region into = parts_of(sums, collective, run);
    if (value == sums) {
      const Region landing = sequence.scratch(into.size_bytes);
      sequence.recv(landing, peer, tag);
      sequence.reduce(landing, into);
    } else {
      sequence.recv(into, peer, tag);
      sequence.reduce(parts_of(value, collective, run), into);
    }
  };
  if (extras.absorbs(rank)) {
    receive({0, size}, rank - 1, kExtraTag);
    value = sums;
  }
  int from = 0;
  int to = full;
  const int self = extras.kept_index(rank);
  std::uint32_t tag = kFirstRoundTag;
  for (int half = full / 2; half > 0; half /= 2, ++tag) {
    const int middle = from + half;
    const int peer = extras.rank(self ^ half);
    const bool keeps_lower = self < middle;
    sequence.send(parts_of(value, collective, keeps_lower ? extras.parts(middle, to) : extras.parts(from, middle)),
                  peer, tag);
    (keeps_lower ? to : from) = middle;
    receive(extras.parts(from, to), peer, tag);
    value = sums;
  }
  if (extras.absorbs(rank)) sequence.send(part_of_rank(value, collective, rank - 1), rank - 1, kResultTag);
  sequence.copy(part_of_rank(value, collective, rank), target);
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
