// allreduce by an exchange (exchange.hpp) among all ranks; or among the leaders of the nodes, with a combination inside
// the nodes before it and a broadcast inside the nodes after it. Valid for every team and size.
#include "collectives/choose/planners.hpp"

namespace penstock::collectives {

// In this order, partners at short distances and neighbours in the ring are on the same node.
Plan allreduce_by_exchange(const std::string& algorithm, const Team& team, const Collective& collective,
                           AllreduceExchange exchange) {
  Sequence sequence(algorithm, team);
  exchange(sequence, by_node(team, 0), whole_exchange(team, collective));
  return finish(std::move(sequence), team, collective);
}

Plan allreduce_by_leaders(const std::string& algorithm, const Team& team, const Collective& collective,
                          const LeadersExchange& by) {
  Sequence sequence(algorithm, team);
  Leaders leaders(sequence, team, collective, 0, by.most_slots, 2, by.by_messages);
  const Region own = contribution(team, collective);
  const Region target = result(team, collective);
  leaders.combine_later(own, target);
  for (std::size_t slot = 0; slot < leaders.slots(); ++slot) {
    if (!leaders.has_slot(slot)) continue;
    const Region into = leaders.part(target, slot);
    by.exchange(sequence, leaders.group(slot),
                {.own = leaders.is_alone() ? leaders.part(own, slot) : into,
                 .target = into,
                 .elements = into.size_bytes / collective.item_bytes(),
                 .element_bytes = collective.item_bytes(),
                 .segment_bytes = leaders.segment_bytes(),
                 .prepare = [&](Region used, StepId sent) { leaders.prepare(used, sent); }});
  }
  leaders.combine_rest();
  leaders.spread(target);
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
