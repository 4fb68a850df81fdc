// The blocks of the ranks in the buffers of an operation, with or without counts and displacements.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/parts/arguments.hpp"

namespace penstock::collectives {

std::uint64_t count_of(const Blocks& blocks, const Collective& collective, int rank);
/// O(ranks) if it is a sum of counts: place_blocks() makes displacements of them.
std::uint64_t displacement_of(const Blocks& blocks, const Collective& collective, int rank);
void place_blocks(Blocks& blocks);
/// Bytes up to the end of the last non-empty block.
std::uint64_t extent_bytes(const Blocks& blocks, const Collective& collective, int size);
/// The same for the blocks of neighbours.
std::uint64_t extent_bytes(const Blocks& blocks, const Collective& collective, std::span<const Neighbor> neighbors);

/// The ranks of each node, ascending.
std::vector<std::vector<int>> ranks_by_node(const Team& team);

}  // namespace penstock::collectives
