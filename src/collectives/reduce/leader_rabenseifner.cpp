// Combines inside each node, then among the leaders by recursive halving; the root's leader gathers the parts.
// Cost: 2 * log2 k rounds between k nodes, about 2 * m bytes at the root and m elsewhere; m more for some leaders if k
// is not a power of two. Valid for every team and size; for messages of medium length.
#include "collectives/parts/leaders.hpp"

namespace penstock::collectives {

Plan reduce_leader_rabenseifner(const Team& team, const Collective& collective) {
  const std::uint64_t bytes = block_bytes(collective);
  Sequence sequence("reduce/leader_rabenseifner", team);
  Leaders leaders(sequence, team, collective, collective.root, 1, 1);
  // The same region on all ranks of a node: the root's output, or scratch memory of another leader.
  const bool has_room = team.same_node(team.rank, collective.root);
  const Region sum{0, bytes, has_room ? Buffer::output : Buffer::scratch};
  if (leaders.has_slot(0) && !has_room) sequence.scratch(bytes);
  leaders.combine(leaders.by_tasks() ? Region{0, bytes, Buffer::input} : contribution(team, collective), sum);
  if (leaders.has_slot(0))
    halving_reduce(sequence, leaders.group(0),
                   {.own = leaders.is_alone() ? contribution(team, collective) : sum,
                    .target = sum,
                    .elements = collective.count,
                    .element_bytes = collective.item_bytes(),
                    .segment_bytes = collective.segment_bytes});
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
