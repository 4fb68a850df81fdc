// Ranks at distance 1, 2, 4, … exchange all blocks that they have, which are adjacent in the result. The first exchange
// takes the own block from where it is, so that no message waits for its copy.
// Cost: log2 n rounds, m * (n - 1) bytes sent. Valid if n is a power of two; for short blocks.
#include "collectives/parts/stage.hpp"

namespace penstock::collectives {

Plan allgather_recursive_doubling(const Team& team, const Collective& collective) {
  const Region own = contribution(team, collective);
  const Region all = result(team, collective);
  Sequence sequence("allgather/recursive_doubling", team);
  const Region own_block = block_of(all, collective, team.rank);
  if (team.size() == 1) sequence.copy(own, own_block);
  std::uint32_t tag = 0;
  for (int distance = 1; distance < team.size(); distance *= 2, ++tag) {
    const int peer = team.rank ^ distance;
    const auto blocks_from = [&](int rank) {
      return blocks_of(all, collective, {rank / distance * distance, distance});
    };
    sequence.send(distance == 1 ? own : blocks_from(team.rank), peer, tag);
    sequence.recv(blocks_from(peer), peer, tag);
    if (distance == 1) sequence.copy(own, own_block);
  }
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
