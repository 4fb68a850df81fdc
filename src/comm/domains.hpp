// The third level: which ranks of a node share a last-level cache and memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace penstock::comm {

/// Of the calling process: engine::domain_of its CPUs, -1 where it may use all of its node. Local; reads the topology
/// of the machine only where the process is bound.
std::int32_t local_domain();

/// Team::domain_of_rank from the local_domains of all ranks. Pure. A node one of whose ranks belongs to no domain is
/// one domain as a whole. Empty where that tells no more than the nodes do: one domain per node, or one per rank.
std::vector<std::int32_t> domains_of_ranks(std::span<const std::int32_t> node_of_rank,
                                           std::span<const std::int32_t> local_domains);

}  // namespace penstock::comm
