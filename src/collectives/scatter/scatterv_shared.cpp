// The root tells each rank by its flag how long that rank's block is. Short ones lie beside the flag, longer ones
// follow as messages (Boxes). The root copies its own last. Valid on one node of few ranks.
#include "collectives/parts/blocks.hpp"
#include "collectives/parts/boxes.hpp"

namespace penstock::collectives {

Plan scatterv_shared(const Team& team, const Collective& collective) {
  const Region target = result(team, collective);
  const int readers = team.size() - 1;
  Sequence sequence("scatterv/shared", team);
  Boxes boxes(sequence, team, collective, readers);
  if (team.rank != collective.root) {
    const int reader = (team.rank - collective.root - 1 + team.size()) % team.size();
    boxes.wait(reader, collective.root, target);
    boxes.take(reader, collective.root, target);
    return finish(std::move(sequence), team, collective);
  }
  const auto rank_of = [&](int reader) { return (collective.root + 1 + reader) % team.size(); };
  const auto block_of_reader = [&](int reader) { return send_block(team, collective, rank_of(reader)); };
  for (int reader = 0; reader < readers; ++reader) boxes.put(reader, block_of_reader(reader));
  for (int reader = 0; reader < readers; ++reader) boxes.signal(reader, rank_of(reader), block_of_reader(reader));
  for (int reader = 0; reader < readers; ++reader) boxes.send(reader, rank_of(reader), block_of_reader(reader));
  if (!collective.in_place) sequence.copy(send_block(team, collective, team.rank), target);
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
