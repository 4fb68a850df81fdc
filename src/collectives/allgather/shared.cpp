// Each rank publishes its block and reads those of the others.
// Valid if all ranks are on one node and the published data is small.
#include <utility>

#include "collectives/choose/planners.hpp"
#include "collectives/parts/published.hpp"

namespace penstock::collectives {

Plan gather_all_shared(const std::string& algorithm, const Team& team, const Collective& collective) {
  Published published(algorithm, team, collective);
  published.to_all(contribution(team, collective));
  for (int rank = 0; rank < team.size(); ++rank) published.take(rank, 0, receive_block(team, collective, rank));
  return std::move(published).finish();
}

}  // namespace penstock::collectives
