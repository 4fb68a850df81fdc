// The blocks of the ranks in the buffers of an operation, with counts and displacements or without.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/algorithms.hpp"

namespace penstock::collectives {

std::uint64_t count_of(const Blocks& blocks, const Collective& what, int rank);
/// O(ranks) where it follows from the counts.
std::uint64_t displacement_of(const Blocks& blocks, const Collective& what, int rank);
/// Bytes up to the end of the last block that is not empty.
std::uint64_t extent_bytes(const Blocks& blocks, const Collective& what, int size);

/// The ranks of each node, ascending.
std::vector<std::vector<int>> ranks_by_node(const Team& team);

/// The plans that an operation and its variant with counts share; `algorithm` is their name.
Plan exchange_pairwise(const std::string& algorithm, const Team& team, const Collective& what);
Plan reduce_parts_ring(const std::string& algorithm, const Team& team, const Collective& what);
Plan reduce_parts_halving(const std::string& algorithm, const Team& team, const Collective& what);
Plan reduce_parts_pairwise(const std::string& algorithm, const Team& team, const Collective& what);
Plan reduce_parts_hierarchical(const std::string& algorithm, const Team& team, const Collective& what);
Plan reduce_parts_divided(const std::string& algorithm, const Team& team, const Collective& what);

}  // namespace penstock::collectives
