// scan and exscan: after k rounds a rank has combined its contribution with those of the 2^k - 1 ranks before it.
// exscan first shifts the contributions by one rank. Cost: ceil(log2 n) rounds of m bytes, one more for exscan. Valid
// for every team and size; combines in rank order; for short messages.
#include "collectives/parts/node_tasks.hpp"
#include "collectives/scan/prefix.hpp"

namespace penstock::collectives {

void doubling_stage(Sequence& sequence, const std::vector<int>& ranks, int self, Region value,
                    std::uint32_t first_tag) {
  const int size = static_cast<int>(ranks.size());
  if (size < 2) return;
  Region landing[2];  // take turns, so that the next message can arrive while this one is being added
  for (Region& region : landing) region = self > 0 ? sequence.scratch(value.size_bytes) : Region{};
  std::uint32_t round = 0;
  for (int distance = 1; distance < size; distance *= 2, ++round) {
    if (self + distance < size)
      sequence.send(value, ranks[static_cast<std::size_t>(self + distance)], first_tag + round);
    if (self < distance) continue;
    sequence.recv(landing[round % 2], ranks[static_cast<std::size_t>(self - distance)], first_tag + round);
    sequence.reduce(landing[round % 2], value);
  }
}

Plan prefix_doubling(const std::string& algorithm, const Team& team, const Collective& collective) {
  constexpr std::uint32_t kShiftTag = kDoublingTags;
  const Region own = contribution(team, collective);
  const Region target = result(team, collective);
  std::vector<int> ranks = everyone(team);
  Sequence sequence(algorithm, team);
  if (collective.kind == CollectiveKind::scan) {
    sequence.copy(own, target);
    doubling_stage(sequence, ranks, team.rank, target, 0);
    return finish(std::move(sequence), team, collective);
  }
  Region shifted = own;
  if (collective.in_place && team.rank > 0) {  // the result overwrites the contribution
    shifted = sequence.scratch(own.size_bytes);
    sequence.copy(own, shifted);
  }
  if (team.rank + 1 < team.size()) sequence.send(shifted, team.rank + 1, kShiftTag);
  if (team.rank > 0) {
    sequence.recv(target, team.rank - 1, kShiftTag);
    ranks.erase(ranks.begin());
    doubling_stage(sequence, ranks, team.rank - 1, target, 0);
  }
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
