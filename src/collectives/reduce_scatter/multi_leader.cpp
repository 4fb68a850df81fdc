// reduce_scatter and reduce_scatter_block: the rank at index j of each node combines what its node has for the ranks at
// index j of all nodes, and these ranks form a ring between the nodes. So each link carries what has to cross it and no
// more: all parts but the node's own. Segments are combined inside a node while others cross. Cost: nodes - 1 rounds
// between nodes, in each of them one message per rank of a node inside. Valid on several nodes, with ranks in any
// order; where a node has more ranks than the smallest one, the parts of these go through the others.
#include <algorithm>
#include <vector>

#include "collectives/parts/blocks.hpp"
#include "collectives/parts/pieces.hpp"
#include "collectives/parts/stage.hpp"

namespace penstock::collectives {

Plan reduce_parts_multi_leader(const std::string& algorithm, const Team& team, const Collective& collective) {
  const auto nodes = ranks_by_node(team);
  const std::size_t own_node = static_cast<std::size_t>(team.node_of_rank[static_cast<std::size_t>(team.rank)]);
  const std::vector<int>& local = nodes[own_node];
  const auto ranks_of = [](const std::vector<int>& ranks) { return ranks.size(); };
  const std::size_t leaders = std::ranges::min_element(nodes, {}, ranks_of)->size();
  const std::size_t largest_node = std::ranges::max_element(nodes, {}, ranks_of)->size();
  const std::size_t parts = (largest_node + leaders - 1) / leaders;  // of a node, for each leader
  const auto at = [&](std::size_t steps_back) -> const std::vector<int>& {
    return nodes[(own_node + nodes.size() - steps_back) % nodes.size()];
  };
  const std::uint64_t element_bytes = collective.item_bytes();
  const Region own = contribution(team, collective);
  const Region target = result(team, collective);
  std::uint64_t largest_elements = 0;
  for (int rank = 0; rank < team.size(); ++rank)
    largest_elements = std::max(largest_elements, part_elements(collective, rank));
  const std::uint64_t largest_bytes = largest_elements * element_bytes;
  const std::uint64_t steps_of_segment = nodes.size() * parts * (2 * largest_node + 1);
  const std::uint64_t segments = pieces_of(largest_bytes, collective.segment_bytes,
                                           std::max<std::uint64_t>(kMultiLeaderSteps / steps_of_segment, 1));
  const auto piece = [&](Region part, int rank, std::uint64_t s) {
    return part_of(part, part_elements(collective, rank), element_bytes, segments, s);
  };

  Sequence sequence(algorithm, team);
  const auto self = static_cast<std::size_t>(std::ranges::find(local, team.rank) - local.begin());
  // What is being sent to the next node, and what has come from the previous one, of two rounds; a few segments of the
  // ranks of this node.
  Region sums[2];
  Region landings[2];
  const std::uint64_t slot_bytes = (largest_elements + segments - 1) / segments * element_bytes;
  Region slots;
  if (self < leaders) {
    for (Region& region : sums) region = sequence.scratch(parts * largest_bytes);
    for (Region& region : landings) region = sequence.scratch(parts * largest_bytes);
    slots = sequence.scratch(kStageInFlight * slot_bytes);
  }
  const auto in = [&](const Region& memory, std::size_t index, int rank) {
    return Region{memory.offset_bytes + index * largest_bytes, part_elements(collective, rank) * element_bytes,
                  Buffer::scratch};
  };
  std::uint64_t received = 0;
  for (std::size_t step = 1; step <= nodes.size(); ++step) {
    const bool is_last = step == nodes.size();
    const std::vector<int>& ranks = at(step);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const int rank = ranks[i];
      const std::size_t leader = i % leaders;
      const Region mine = part_of_rank(own, collective, rank);
      const bool is_result = is_last && rank == team.rank && !collective.in_place;
      const Region sum = is_result ? target : in(sums[step % 2], i / leaders, rank);
      for (std::uint64_t s = 0; s < segments; ++s) {
        const auto tag = static_cast<std::uint32_t>(static_cast<std::uint64_t>(rank) * segments + s);
        sequence.at(0, static_cast<std::uint32_t>(s));
        if (leader != self) {
          sequence.send(piece(mine, rank, s), local[leader], tag);
          continue;
        }
        Accumulator all(piece(mine, rank, s), piece(sum, rank, s));
        for (std::size_t other = 1; other < local.size(); ++other) {
          const Region slot{slots.offset_bytes + received++ % kStageInFlight * slot_bytes, all.value().size_bytes,
                            Buffer::scratch};
          all.add(sequence, local[(self + other) % local.size()], tag, slot);
        }
        if (step > 1) all.add(sequence, at(1)[leader], tag, piece(in(landings[step % 2], i / leaders, rank), rank, s));
        if (!is_last)
          sequence.send(all.value(), nodes[(own_node + 1) % nodes.size()][leader], tag);
        else if (rank != team.rank)
          sequence.send(all.value(), rank, tag);
      }
    }
  }
  // Last, as the contributions may lie there.
  for (std::uint64_t s = 0; s < segments; ++s) {
    sequence.at(0, static_cast<std::uint32_t>(s));
    const auto tag = static_cast<std::uint32_t>(static_cast<std::uint64_t>(team.rank) * segments + s);
    if (self >= leaders)
      sequence.recv(piece(target, team.rank, s), local[self % leaders], tag);
    else if (collective.in_place)
      sequence.copy(piece(in(sums[nodes.size() % 2], self / leaders, team.rank), team.rank, s),
                    piece(target, team.rank, s));
  }
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
