// neighbor_allgather and neighbor_alltoall: each rank publishes its blocks and reads those for it.
// Valid if all ranks are on one node and the published data is small.
#include <utility>

#include "collectives/choose/planners.hpp"
#include "collectives/parts/blocks.hpp"
#include "collectives/parts/published.hpp"

namespace penstock::collectives {

Plan neighbor_shared(const std::string& algorithm, const Team& team, const Collective& collective) {
  Published published(algorithm, team, collective);
  const std::uint64_t bytes = block_bytes(collective);
  // A rank without neighbours does not know the length of others.
  if (bytes > 0) {
    published.to_neighbors(contribution(team, collective));
    const std::span<const Neighbor> sources = sources_of(team, collective);
    for (std::size_t i = 0; i < sources.size(); ++i) {
      if (sources[i].rank == Neighbor::kNone) continue;
      const std::size_t block = collective.kind == CollectiveKind::neighbor_allgather
                                    ? 0
                                    : collective.graph->index_at_source(team.rank, sources[i]);
      published.take(sources[i].rank, block * bytes, receive_block(team, collective, static_cast<int>(i)));
    }
  }
  return std::move(published).finish();
}

}  // namespace penstock::collectives
