// In round k each rank sends the blocks that it has, at most 2^k, to the rank 2^k before it. It gathers blocks in
// scratch memory, its own first, and rotates them into rank order at the end (Bruck et al. 1997). The first message is
// sent from where the own block is, so that it does not wait for its copy.
// Cost: ceil(log2 n) rounds, m * (n - 1) bytes sent, m * n bytes copied. Valid for every team and size; for short
// blocks.
#include <algorithm>

#include "collectives/parts/stage.hpp"

namespace penstock::collectives {

Plan allgather_bruck(const Team& team, const Collective& collective) {
  const int size = team.size();
  const int rank = team.rank;
  const std::uint64_t bytes = block_bytes(collective);
  const Region all = result(team, collective);
  Sequence sequence("allgather/bruck", team);
  // Rank 0 needs no rotation, so it gathers in the result.
  const Region collected = rank == 0 ? all : sequence.scratch(all.size_bytes);
  const auto blocks = [&](int first, int count) {
    return Region{collected.offset_bytes + static_cast<std::uint64_t>(first) * bytes,
                  static_cast<std::uint64_t>(count) * bytes, collected.buffer};
  };
  const Region own = contribution(team, collective);
  if (size == 1) sequence.copy(own, blocks(0, 1));
  std::uint32_t tag = 0;
  for (int distance = 1; distance < size; distance *= 2, ++tag) {
    const int count = std::min(distance, size - distance);
    sequence.send(distance == 1 ? own : blocks(0, count), (rank + size - distance) % size, tag);
    sequence.recv(blocks(distance, count), (rank + distance) % size, tag);
    if (distance == 1) sequence.copy(own, blocks(0, 1));
  }
  if (rank != 0) {
    sequence.copy(blocks(0, size - rank), blocks_of(all, collective, {rank, size - rank}));
    sequence.copy(blocks(size - rank, rank), blocks_of(all, collective, {0, rank}));
  }
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
