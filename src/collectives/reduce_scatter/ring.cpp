// reduce_scatter and reduce_scatter_block: each part travels once around the ring to its rank and is combined on its
// way. Ranks of a node are neighbours in the ring. Segments of a part are combined while the next ones arrive. Cost: n
// - 1 rounds, each rank sends all parts but its own, the minimum. Valid for every team and size.
#include <algorithm>

#include "collectives/parts/blocks.hpp"
#include "collectives/parts/pieces.hpp"
#include "collectives/parts/stage.hpp"

namespace penstock::collectives {

Plan reduce_parts_ring(const std::string& algorithm, const Team& team, const Collective& collective) {
  const Group ring = by_node(team, 0);
  const int size = ring.size();
  const int next = ring[(ring.self + 1) % size];
  const int previous = ring[(ring.self + size - 1) % size];
  const std::uint64_t element_bytes = collective.item_bytes();
  const Region own = contribution(team, collective);
  const Region target = result(team, collective);
  std::uint64_t largest_elements = 0;
  for (int rank = 0; rank < size; ++rank)
    largest_elements = std::max(largest_elements, part_elements(collective, rank));
  const std::uint64_t segments = pieces_of(largest_elements * element_bytes, collective.segment_bytes,
                                           kMaxReducePartsPieces / static_cast<std::uint64_t>(size));
  const auto at_place = [&](int steps) { return ring[(ring.self + 2 * size - steps) % size]; };
  const auto piece = [&](Region part, int rank, std::uint64_t s) {
    return part_of(part, part_elements(collective, rank), element_bytes, segments, s);
  };
  Sequence sequence(algorithm, team);
  if (size == 1) sequence.copy(own, target);
  // Sums alternate between two scratch regions. The last one goes to the result, unless that is still being read.
  Region landing[2];
  if (size > 1)
    for (Region& region : landing) region = sequence.scratch(largest_elements * element_bytes);
  std::uint32_t tag = 0;
  for (int round = 0; round < size - 1; ++round) {
    const int sent = at_place(round + 1);
    const int received = at_place(round + 2);
    const auto in_landing = [&](int turn, int rank) {
      return Region{landing[turn % 2].offset_bytes, part_elements(collective, rank) * element_bytes, Buffer::scratch};
    };
    const bool is_last = round == size - 2;
    const Region into = is_last && !collective.in_place ? target : in_landing(round, received);
    for (std::uint64_t s = 0; s < segments; ++s, ++tag) {
      sequence.at(0, static_cast<std::uint32_t>(s));
      sequence.send(piece(round == 0 ? part_of_rank(own, collective, sent) : in_landing(round - 1, sent), sent, s),
                    next, tag);
      sequence.recv(piece(into, received, s), previous, tag);
      sequence.reduce(piece(part_of_rank(own, collective, received), received, s), piece(into, received, s));
    }
    if (!is_last) continue;
    // Waits until all parts in that memory have been sent.
    for (std::uint64_t s = 0; s < segments; ++s)
      sequence.at(0, static_cast<std::uint32_t>(s)).copy(piece(into, received, s), piece(target, received, s));
  }
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
