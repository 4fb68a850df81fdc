#include "redistribute/messages.hpp"

#include <map>

namespace penstock::redistribute {

// With all pairs of a node under way at once, about as much as fills a link of 1 Gbit/s for 30 ms: switches and queues
// of the operating system hold that. Below the least what each message costs counts; above the most there is nothing to
// be had, and the first ones leave later.
std::uint64_t Window::message_bytes(const Team& team) {
  constexpr std::uint64_t kNodeBytes = std::uint64_t{3} << 20;
  constexpr std::uint64_t kLeastBytes = std::uint64_t{64} << 10;
  constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 10;
  std::map<std::int32_t, std::uint64_t> ranks;  // by node
  for (const std::int32_t node : team.node_of_rank) ++ranks[node];
  std::uint64_t pairs = 1;
  for (const auto& [node, count] : ranks) pairs = std::max(pairs, count * (team.node_of_rank.size() - count));
  return std::clamp(kNodeBytes / (kInFlight * pairs), kLeastBytes, kMostBytes);
}

}  // namespace penstock::redistribute
