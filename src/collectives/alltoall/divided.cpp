// Each block is copied by a task that any core of the node may run. In place, each rank first copies its blocks to
// scratch memory, since received blocks overwrite them. Cost: 1 to 2 copies per block, one more in place, by all free
// cores. Valid on one node.
#include <array>

#include "collectives/parts/node_tasks.hpp"

namespace penstock::collectives {

bool shared_pairs(const Team& team, const Collective& collective) {
  return shared_node(team, collective) &&
         static_cast<std::uint32_t>(team.size()) * static_cast<std::uint32_t>(team.size()) <= kMaxTasks;
}

Plan alltoall_divided(const Team& team, const Collective& collective) {
  const std::uint64_t bytes = block_bytes(collective);
  const Region all = result(team, collective);
  Sequence sequence("alltoall/divided", team);
  Region from{0, all.size_bytes, Buffer::input};
  if (collective.in_place) {
    from = sequence.scratch(all.size_bytes);
    sequence.copy(all, from);
  }
  for (int step = 0; step < team.size() && bytes > 0; ++step)
    for (int to = 0; to < team.size(); ++to) {
      const int sender = (to + step) % team.size();
      sequence.task({}, std::array{RankRegion{block_of(from, collective, to), sender}},
                    std::array{RankRegion{block_of(all, collective, sender), to}});
    }
  sequence.publish_tasks();
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
