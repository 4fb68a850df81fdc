// allreduce by an exchange (exchange.hpp) among all ranks; or among the leaders of the nodes, with a combination inside
// the nodes before it and a broadcast inside the nodes after it. Valid for every team and size.
#include <algorithm>

#include "collectives/choose/planners.hpp"

namespace penstock::collectives {

// In this order, partners at short distances and neighbours in the ring are on the same node.
Plan allreduce_by_exchange(const std::string& algorithm, const Team& team, const Collective& collective,
                           AllreduceExchange exchange) {
  Sequence sequence(algorithm, team);
  exchange(sequence, by_node(team, 0), whole_exchange(team, collective));
  return finish(std::move(sequence), team, collective);
}

namespace {

/// Of the segments of a chunk: a few, as the plan has those of all chunks.
std::uint64_t longest_of(Region chunk) { return std::max(kEagerBytes, chunk.size_bytes / 16); }

}  // namespace

// A chunk is combined inside the nodes while the one before it is exchanged.
Plan allreduce_by_leaders(const std::string& algorithm, const Team& team, const Collective& collective,
                          const LeadersExchange& by) {
  Sequence sequence(algorithm, team);
  const Region own = contribution(team, collective);
  const Region target = result(team, collective);
  const std::uint64_t chunks = by.in_chunks ? chunks_of(team, collective) : 1;
  std::uint32_t segment = 0;
  StepId combined = Sequence::kNone;
  for (std::uint64_t index = 0; index < chunks; ++index) {
    const auto chunk_of = [&](Region whole) {
      return part_of(whole, collective.count, collective.item_bytes(), chunks, index);
    };
    Collective chunk = collective;
    chunk.count = chunk_of(target).size_bytes / collective.item_bytes();
    if (by.in_chunks) chunk.segment_bytes = 0;
    Leaders leaders(sequence, team, chunk, 0, by.most_slots, 2 * static_cast<std::uint32_t>(chunks), by.by_messages,
                    segment);
    segment += leaders.segments();
    leaders.combine_later(chunk_of(own), chunk_of(target));
    if (by.by_messages) {
      // Of all that is ready at the beginning, a core would otherwise do a little of each chunk.
      sequence.in_order_after(combined);
      const std::size_t before = sequence.step_count();
      leaders.combine_rest();
      if (sequence.step_count() > before) combined = static_cast<StepId>(sequence.step_count() - 1);
      sequence.in_order_after(Sequence::kNone);
    }
    for (std::size_t slot = 0; slot < leaders.slots(); ++slot) {
      if (!leaders.has_slot(slot)) continue;
      const Region into = leaders.part(chunk_of(target), slot);
      by.exchange(sequence, leaders.group(slot),
                  {.own = leaders.is_alone() ? leaders.part(chunk_of(own), slot) : into,
                   .target = into,
                   .elements = into.size_bytes / collective.item_bytes(),
                   .element_bytes = collective.item_bytes(),
                   .segment_bytes = std::max(leaders.segment_bytes(), by.in_chunks ? longest_of(into) : 0),
                   .radix = collective.radix,
                   .first_tag = static_cast<std::uint32_t>(index) * kExchangeTags,
                   .prepare = [&](Region used, StepId sent) { leaders.prepare(used, sent); }});
    }
    leaders.combine_rest();
    leaders.spread(chunk_of(target));
  }
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
