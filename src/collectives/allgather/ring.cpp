// Each rank passes on what its predecessor sent in the round before. Ranks of a node are neighbours in the ring.
// Between nodes a block travels in pieces, so that the next node gets the first ones while the last ones are on their
// way. Cost: n - 1 rounds of m bytes. Valid for every team and size; for long blocks.
#include "collectives/parts/pieces.hpp"
#include "collectives/parts/stage.hpp"

namespace penstock::collectives {

Plan allgather_ring(const Team& team, const Collective& collective) {
  const Group ring = by_node(team, 0);
  const int size = ring.size();
  const int next = ring[(ring.self + 1) % size];
  const int previous = ring[(ring.self + size - 1) % size];
  const Region own = contribution(team, collective);
  const Region all = result(team, collective);
  const auto block_behind = [&](int steps) {
    return block_of(all, collective, ring[(ring.self + size - steps) % size]);
  };
  const std::uint64_t pieces =
      pieces_of(own.size_bytes, collective.segment_bytes, kMaxFlatRingPieces / static_cast<std::uint64_t>(size));
  // Sender and receiver cut alike. Inside a node a piece would be one system call more.
  const auto for_each_piece = [&](int peer, Region block, int round, const auto& action) {
    const std::uint64_t count = team.same_node(team.rank, peer) ? 1 : pieces;
    for (std::uint64_t i = 0; i < count; ++i)
      action(part_of(block, block.size_bytes, 1, count, i),
             static_cast<std::uint32_t>(static_cast<std::uint64_t>(round) * pieces + i));
  };
  Sequence sequence("allgather/ring", team);
  for (int round = 0; round < size - 1; ++round) {
    for_each_piece(next, round == 0 ? own : block_behind(round), round,
                   [&](Region piece, std::uint32_t tag) { sequence.send(piece, next, tag); });
    for_each_piece(previous, block_behind(round + 1), round,
                   [&](Region piece, std::uint32_t tag) { sequence.recv(piece, previous, tag); });
  }
  sequence.copy(own, block_behind(0));
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
