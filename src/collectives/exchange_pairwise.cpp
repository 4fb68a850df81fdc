// alltoall and alltoallv: in round k each rank sends to the one k places ahead in the ring of the nodes and receives
// from the one k places behind, a few rounds at a time. In place the two ranks of a pair exchange in the same round,
// through a little scratch memory.
// Cost: n - 1 rounds, each block sent once. Valid for every team and size; a rank needs to know its own blocks only.
#include <algorithm>
#include <array>
#include <vector>

#include "collectives/blocks.hpp"
#include "collectives/group.hpp"

namespace penstock::collectives {
namespace {

constexpr int kRoundsInFlight = 4;

void exchange_in_place(Sequence& sequence, const Team& team, const Collective& what) {
  const int size = team.size();
  std::uint64_t largest_bytes = 0;
  for (int peer = 0; peer < size; ++peer)
    if (peer != team.rank) largest_bytes = std::max(largest_bytes, send_block(team, what, peer).size_bytes);
  std::array<Region, kRoundsInFlight> slots;
  for (Region& slot : slots) slot = sequence.scratch(largest_bytes);
  for (int round = 0; round < size; ++round) {
    const int peer = (round + size - team.rank) % size;
    if (peer == team.rank) continue;
    const Region block = send_block(team, what, peer);
    const Region slot{slots[static_cast<std::size_t>(round % kRoundsInFlight)].offset_bytes, block.size_bytes,
                      Buffer::scratch};
    sequence.copy(block, slot);
    sequence.send(slot, peer, 0);
    sequence.recv(block, peer, 0);
  }
}

}  // namespace

Plan exchange_pairwise(const std::string& algorithm, const Team& team, const Collective& what) {
  Sequence sequence(algorithm, team);
  if (what.in_place) {
    exchange_in_place(sequence, team, what);
    return finish(std::move(sequence), team, what);
  }
  const Group ring = by_node(team, 0);
  const int size = ring.size();
  std::vector<StepId> received;
  for (int round = 1; round < size; ++round) {
    const int next = ring[(ring.self + round) % size];
    const int previous = ring[(ring.self + size - round) % size];
    const StepId earlier =
        round > kRoundsInFlight ? received[static_cast<std::size_t>(round - 1 - kRoundsInFlight)] : Sequence::kNone;
    sequence.send(send_block(team, what, next), next, 0, {earlier});
    received.push_back(sequence.recv(receive_block(team, what, previous), previous, 0));
  }
  sequence.copy(send_block(team, what, team.rank), receive_block(team, what, team.rank));
  return finish(std::move(sequence), team, what);
}

}  // namespace penstock::collectives
