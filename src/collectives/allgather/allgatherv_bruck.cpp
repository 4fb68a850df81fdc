// As allgather_bruck, with blocks of different sizes. Each rank gathers them in scratch memory, its own block first,
// and copies them to their places at the end. Cost: ceil(log2 n) rounds, all blocks but one sent, all blocks copied.
// Valid for every team and size; for short blocks.
#include <algorithm>
#include <vector>

#include "collectives/parts/blocks.hpp"

namespace penstock::collectives {

Plan allgatherv_bruck(const Team& team, const Collective& collective) {
  const int size = team.size();
  const int rank = team.rank;
  std::vector<Region> blocks;  // of rank, rank + 1, …: their places in the result
  std::vector<std::uint64_t> begin_bytes{0};
  for (int i = 0; i < size; ++i) {
    blocks.push_back(receive_block(team, collective, (rank + i) % size));
    begin_bytes.push_back(begin_bytes.back() + blocks.back().size_bytes);
  }
  Sequence sequence("allgatherv/bruck", team);
  const Region collected = sequence.scratch(begin_bytes.back());
  const auto run = [&](int first, int count) {
    const std::uint64_t from_bytes = begin_bytes[static_cast<std::size_t>(first)];
    return Region{collected.offset_bytes + from_bytes,
                  begin_bytes[static_cast<std::size_t>(first + count)] - from_bytes, Buffer::scratch};
  };
  const Region own = contribution(team, collective);
  if (size == 1) sequence.copy(own, run(0, 1));
  std::uint32_t tag = 0;
  for (int distance = 1; distance < size; distance *= 2, ++tag) {
    const int count = std::min(distance, size - distance);
    sequence.send(distance == 1 ? own : run(0, count), (rank + size - distance) % size, tag);
    sequence.recv(run(distance, count), (rank + distance) % size, tag);
    if (distance == 1) sequence.copy(own, run(0, 1));
  }
  std::vector<Move> moves;
  for (int i = collective.in_place ? 1 : 0; i < size; ++i)
    moves.push_back({run(i, 1), blocks[static_cast<std::size_t>(i)]});
  sequence.move(moves, size_bytes(collective.dtype));
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
