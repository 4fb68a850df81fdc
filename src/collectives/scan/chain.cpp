// scan and exscan: each rank combines the message of the previous rank with its own contribution and sends it on,
// segment by segment. Cost: n - 1 + segments - 1 rounds of one segment, m bytes sent. Valid for every team and size;
// combines in rank order; for long messages.
#include "collectives/parts/stage.hpp"

namespace penstock::collectives {
namespace {

constexpr std::uint32_t kChainInFlight = 4;

}  // namespace

Plan prefix_chain(const std::string& algorithm, const Team& team, const Collective& collective) {
  const Segments segments(collective);
  const Region own = contribution(team, collective);
  const Region target = result(team, collective);
  const bool has_next = team.rank + 1 < team.size();
  Sequence sequence(algorithm, team);
  const bool is_inclusive = collective.kind == CollectiveKind::scan;
  Region slots[kChainInFlight];  // for received (scan) or sent (exscan) segments
  if (team.rank > 0 && (is_inclusive || has_next))
    for (Region& slot : slots) slot = sequence.scratch(segments.largest_bytes());
  for (std::uint32_t s = 0; s < segments.count(); ++s) {
    sequence.at(0, s);
    const Region mine = segments.of(own, s);
    const Region into = segments.of(target, s);
    const Region slot{slots[s % kChainInFlight].offset_bytes, mine.size_bytes, Buffer::scratch};
    if (is_inclusive) {
      sequence.copy(mine, into);
      if (team.rank > 0) {
        sequence.recv(slot, team.rank - 1, s);
        sequence.reduce(slot, into);
      }
      if (has_next) sequence.send(into, team.rank + 1, s);
    } else if (team.rank == 0) {
      if (has_next) sequence.send(mine, team.rank + 1, s);
    } else {
      if (has_next) sequence.copy(mine, slot);
      sequence.recv(into, team.rank - 1, s);
      if (has_next) {
        sequence.reduce(into, slot);
        sequence.send(slot, team.rank + 1, s);
      }
    }
  }
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
