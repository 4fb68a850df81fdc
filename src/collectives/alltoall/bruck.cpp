// In round k all blocks whose distance to their target has bit k travel 2^k ranks, packed into one message (Bruck et
// al. 1997). Cost: ceil(log2 n) rounds of m * n / 2 bytes at most, 3 * m * n bytes copied. Valid for every team and
// size; for short blocks.
#include <algorithm>
#include <vector>

#include "collectives/parts/blocks.hpp"

namespace penstock::collectives {

Plan alltoall_bruck(const Team& team, const Collective& collective) {
  const int size = team.size();
  const int rank = team.rank;
  const std::uint64_t bytes = block_bytes(collective);
  const Region all = result(team, collective);
  const Region own = contribution(team, collective);
  Sequence sequence("alltoall/bruck", team);
  // Block d still has to travel d ranks, or has come from d ranks behind.
  const Region turned = sequence.scratch(all.size_bytes);
  const auto blocks = [&](int first, int count) {
    return Region{turned.offset_bytes + static_cast<std::uint64_t>(first) * bytes,
                  static_cast<std::uint64_t>(count) * bytes, Buffer::scratch};
  };
  sequence.copy(blocks_of(own, collective, {rank, size - rank}), blocks(0, size - rank));
  if (rank > 0) sequence.copy(blocks_of(own, collective, {0, rank}), blocks(size - rank, rank));
  Region packed[2];
  for (Region& region : packed) region = sequence.scratch(static_cast<std::uint64_t>((size + 1) / 2) * bytes);
  std::uint32_t tag = 0;
  for (int distance = 1; distance < size; distance *= 2, ++tag) {
    std::vector<Region> moving;
    std::uint64_t moving_bytes = 0;
    for (int first = distance; first < size; first += 2 * distance) {
      moving.push_back(blocks(first, std::min(distance, size - first)));
      moving_bytes += moving.back().size_bytes;
    }
    Region out = packed[0];
    Region in = packed[1];
    out.size_bytes = in.size_bytes = moving_bytes;
    if (moving.size() == 1) out = moving[0];  // a single block needs no packing
    std::uint64_t at_bytes = out.offset_bytes;
    if (moving.size() > 1) {
      std::vector<Move> pack;
      for (const Region& run : moving) {
        pack.push_back({run, {at_bytes, run.size_bytes, Buffer::scratch}});
        at_bytes += run.size_bytes;
      }
      sequence.move(pack, size_bytes(collective.dtype));
    }
    sequence.send(out, (rank + distance) % size, tag);
    sequence.recv(in, (rank + size - distance) % size, tag);
    at_bytes = in.offset_bytes;
    std::vector<Move> unpack;
    for (const Region& run : moving) {
      unpack.push_back({{at_bytes, run.size_bytes, Buffer::scratch}, run});
      at_bytes += run.size_bytes;
    }
    sequence.move(unpack, size_bytes(collective.dtype));
  }
  std::vector<Move> back;
  for (int behind = 0; behind < size; ++behind)
    back.push_back({blocks(behind, 1), block_of(all, collective, (rank + size - behind) % size)});
  sequence.move(back, size_bytes(collective.dtype));
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
