// alltoall, alltoallv and alltoallw, whose datatypes are bytes here: in round k each rank sends to the rank k places
// ahead in node order and receives from the rank k places behind. A few rounds overlap. In place, the two ranks of a
// pair exchange in the same round through scratch memory. Cost: n - 1 rounds, each block sent once. Valid for every
// team and size; a rank only knows its own blocks.
#include <algorithm>
#include <array>
#include <vector>

#include "collectives/parts/blocks.hpp"
#include "collectives/parts/group.hpp"
#include "collectives/parts/pieces.hpp"
#include "collectives/parts/stage.hpp"

namespace penstock::collectives {
namespace {

constexpr int kRoundsInFlight = 4;
// For long blocks. A link that several pairs of ranks share has the best throughput while all of them send, so several
// rounds overlap.
constexpr int kLongRoundsInFlight = 8;
constexpr std::uint64_t kLongBytes = 2 << 20;
constexpr std::uint64_t kMostWaitingBytes = 32 << 20;

/// The pieces of a block to or from `peer`, and their tags. Sender and receiver compute the same pieces.
template <typename Action>
void for_each_piece(const Team& team, int peer, Region block, const Action& action) {
  const std::uint64_t most = kMaxPairwisePieces / static_cast<std::uint64_t>(team.size());
  const std::uint64_t count = pieces_of(block.size_bytes, team.same_node(team.rank, peer) ? kNearPieceBytes : 0, most);
  for (std::uint64_t i = 0; i < count; ++i)
    action(part_of(block, block.size_bytes, 1, count, i), static_cast<std::uint32_t>(i));
}

void exchange_in_place(Sequence& sequence, const Team& team, const Collective& collective) {
  const int size = team.size();
  std::uint64_t largest_bytes = 0;
  for (int peer = 0; peer < size; ++peer)
    if (peer != team.rank) largest_bytes = std::max(largest_bytes, send_block(team, collective, peer).size_bytes);
  std::array<Region, kRoundsInFlight> slots;
  for (Region& slot : slots) slot = sequence.scratch(largest_bytes);
  for (int round = 0; round < size; ++round) {
    const int peer = (round + size - team.rank) % size;
    if (peer == team.rank) continue;
    const Region block = send_block(team, collective, peer);
    const Region slot{slots[static_cast<std::size_t>(round % kRoundsInFlight)].offset_bytes, block.size_bytes,
                      Buffer::scratch};
    sequence.copy(block, slot);
    for_each_piece(team, peer, slot, [&](Region piece, std::uint32_t tag) { sequence.send(piece, peer, tag); });
    for_each_piece(team, peer, block, [&](Region piece, std::uint32_t tag) { sequence.recv(piece, peer, tag); });
  }
}

}  // namespace

int rounds_in_flight(std::uint64_t block_bytes) {
  const bool fits = block_bytes <= kMostWaitingBytes / kLongRoundsInFlight;
  return block_bytes >= kLongBytes && fits ? kLongRoundsInFlight : kRoundsInFlight;
}

Plan exchange_pairwise(const std::string& algorithm, const Team& team, const Collective& collective) {
  Sequence sequence(algorithm, team);
  if (collective.in_place) {
    exchange_in_place(sequence, team, collective);
    return finish(std::move(sequence), team, collective);
  }
  const Group ring = by_node(team, 0);
  const int size = ring.size();
  std::vector<StepId> received;
  std::uint64_t largest_bytes = 0;
  for (int peer = 0; peer < size; ++peer)
    largest_bytes = std::max(largest_bytes, send_block(team, collective, peer).size_bytes);
  const int in_flight = rounds_in_flight(largest_bytes);
  StepId last = Sequence::kNone;
  for (int round = 1; round < size; ++round) {
    const int next = ring[(ring.self + round) % size];
    const int previous = ring[(ring.self + size - round) % size];
    const StepId earlier =
        round > in_flight ? received[static_cast<std::size_t>(round - 1 - in_flight)] : Sequence::kNone;
    for_each_piece(team, next, send_block(team, collective, next),
                   [&](Region piece, std::uint32_t tag) { sequence.send(piece, next, tag, {earlier}); });
    for_each_piece(team, previous, receive_block(team, collective, previous),
                   [&](Region piece, std::uint32_t tag) { last = sequence.recv(piece, previous, tag); });
    received.push_back(last);
  }
  sequence.copy(send_block(team, collective, team.rank), receive_block(team, collective, team.rank));
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
