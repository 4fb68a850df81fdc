// As allgather_ring, with blocks of different sizes and displacements.
// Cost: n - 1 rounds, all blocks but one sent. Valid for every team and size; for long blocks.
#include "collectives/parts/blocks.hpp"
#include "collectives/parts/group.hpp"

namespace penstock::collectives {

Plan allgatherv_ring(const Team& team, const Collective& collective) {
  const Group ring = by_node(team, 0);
  const int size = ring.size();
  const int next = ring[(ring.self + 1) % size];
  const int previous = ring[(ring.self + size - 1) % size];
  const Region own = contribution(team, collective);
  const auto block_behind = [&](int steps) {
    return receive_block(team, collective, ring[(ring.self + size - steps) % size]);
  };
  Sequence sequence("allgatherv/ring", team);
  for (int round = 0; round < size - 1; ++round) {
    const auto tag = static_cast<std::uint32_t>(round);
    sequence.send(round == 0 ? own : block_behind(round), next, tag);
    sequence.recv(block_behind(round + 1), previous, tag);
  }
  sequence.copy(own, block_behind(0));
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
