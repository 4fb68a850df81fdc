#include "redistribute/messages.hpp"

#include <map>

#include "plan/eager.hpp"

namespace penstock::redistribute {

// Two eager messages of an MPI; or one, if all pairs of a node together would overflow the queues of switches and the
// operating system: about what a link of 1 Gbit/s carries in 25 ms.
std::uint64_t MessageWindow::message_bytes(const Team& team) {
  constexpr std::uint64_t kNodeBytes = std::uint64_t{3} << 20;
  std::map<std::int32_t, std::uint64_t> ranks;  // by node
  for (const std::int32_t node : team.node_of_rank) ++ranks[node];
  std::uint64_t pairs = 1;
  for (const auto& [node, count] : ranks) pairs = std::max(pairs, count * (team.node_of_rank.size() - count));
  return kInFlight * pairs * 2 * plan::kEagerBytes <= kNodeBytes ? 2 * plan::kEagerBytes : plan::kEagerBytes;
}

}  // namespace penstock::redistribute
