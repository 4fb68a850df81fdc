#include "host/domains.hpp"

#include <map>
#include <set>
#include <utility>

#include "host/topology.hpp"

namespace penstock::host {

std::int32_t local_domain(const CpuSet& bound) {
  if (bound.empty() || bound == allowed_cpus()) return -1;
  return domain_of("/sys/devices/system", bound);
}

std::vector<std::int32_t> domains_of_ranks(std::span<const std::int32_t> node_of_rank,
                                           std::span<const std::int32_t> local_domains) {
  std::set<std::int32_t> undivided;
  for (std::size_t rank = 0; rank < local_domains.size(); ++rank)
    if (local_domains[rank] < 0) undivided.insert(node_of_rank[rank]);
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> numbers;
  std::vector<std::int32_t> domains;
  for (std::size_t rank = 0; rank < local_domains.size(); ++rank) {
    const std::int32_t node = node_of_rank[rank];
    const auto next = static_cast<std::int32_t>(numbers.size());
    domains.push_back(
        numbers.emplace(std::pair(node, undivided.contains(node) ? -1 : local_domains[rank]), next).first->second);
  }
  const std::set<std::int32_t> nodes(node_of_rank.begin(), node_of_rank.end());
  if (numbers.size() == nodes.size() || numbers.size() == local_domains.size()) domains.clear();
  return domains;
}

}  // namespace penstock::host
