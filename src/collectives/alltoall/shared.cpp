// Each rank publishes its blocks for all ranks, and reads those for it.
// Valid if all ranks are on one node and the published data is small.
#include <utility>

#include "collectives/parts/published.hpp"

namespace penstock::collectives {

Plan alltoall_shared(const Team& team, const Collective& collective) {
  Published published("alltoall/shared", team, collective);
  const std::uint64_t own_bytes = static_cast<std::uint64_t>(team.rank) * block_bytes(collective);
  published.to_all(contribution(team, collective));
  for (int rank = 0; rank < team.size(); ++rank)
    published.take(rank, own_bytes, block_of(result(team, collective), collective, rank));
  return std::move(published).finish();
}

}  // namespace penstock::collectives
