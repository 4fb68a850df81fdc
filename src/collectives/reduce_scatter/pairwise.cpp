// reduce_scatter and reduce_scatter_block: each rank receives its part from every other rank and combines in rank
// order, from the last rank down, so the operation need not commute. Cost: n - 1 messages of one part sent and
// received, the minimum. Valid for every team and size.
#include <algorithm>
#include <array>
#include <vector>

#include "collectives/parts/blocks.hpp"

namespace penstock::collectives {
namespace {

constexpr int kPairwiseInFlight = 4;

}  // namespace

Plan reduce_parts_pairwise(const std::string& algorithm, const Team& team, const Collective& collective) {
  const int size = team.size();
  const Region own = contribution(team, collective);
  const Region target = result(team, collective);
  Sequence sequence(algorithm, team);
  // In place, the result overlaps parts that have not been sent.
  const Region sum = collective.in_place && size > 1 ? sequence.scratch(target.size_bytes) : target;
  std::array<Region, kPairwiseInFlight> landing;
  for (Region& region : landing) region = size > 1 ? sequence.scratch(target.size_bytes) : Region{};
  const Region mine = part_of_rank(own, collective, team.rank);
  // All receivers have the same order of senders, so each rank sends in the order in which it is received.
  for (int peer = 0; peer < size; ++peer)
    if (peer != team.rank) sequence.send(part_of_rank(own, collective, peer), peer, 0);
  for (int peer = size - 1; peer >= 0; --peer) {
    const bool is_first = peer == size - 1;
    if (peer == team.rank) {
      if (is_first)
        sequence.copy(mine, sum);
      else
        sequence.reduce(mine, sum);
    } else if (is_first) {
      sequence.recv(sum, peer, 0);
    } else {
      const Region into = landing[static_cast<std::size_t>(peer % kPairwiseInFlight)];
      sequence.recv(into, peer, 0);
      sequence.reduce(into, sum);
    }
  }
  sequence.copy(sum, target);
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
