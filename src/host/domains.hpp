// The third level (Team::domain_of_rank): which ranks of a node share a last-level cache and a NUMA node.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "host/cpu_set.hpp"

namespace penstock::host {

/// The domain of the calling process, whose threads are bound to these CPUs (domain_of); -1 if it may use all
/// of its node. Local.
std::int32_t local_domain(const CpuSet& bound);

/// Team::domain_of_rank from local_domain() of all ranks. Pure. If a rank of a node has no domain, the node is one
/// domain. Empty if domains add nothing to the nodes: one domain per node, or one rank per domain.
std::vector<std::int32_t> domains_of_ranks(std::span<const std::int32_t> node_of_rank,
                                           std::span<const std::int32_t> local_domains);

}  // namespace penstock::host
