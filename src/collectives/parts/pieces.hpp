// Into how many pieces planners cut blocks that travel between ranks. Costs that make no plan count the same pieces.
#pragma once

#include <algorithm>
#include <cstdint>

namespace penstock::collectives {

// allgather/ring, and the rings of reduce_scatter: of all blocks, so that the length of plans stays bounded.
inline constexpr std::uint64_t kMaxFlatRingPieces = 2048;
inline constexpr std::uint64_t kMaxReducePartsPieces = 2048;  // parts times segments
inline constexpr std::uint64_t kMultiLeaderSteps = 6144;      // of a plan, if segments can bound it

// allgather/leader_ring: tasks of the blocks of a plan's own node, and of each piece of the others.
inline constexpr std::uint64_t kRingTaskBytes = 64 << 10;
inline constexpr std::uint64_t kMaxOwnTasks = 256;
inline constexpr std::uint64_t kMaxTasksOfPiece = 4;
inline constexpr std::uint64_t kMaxRingPieces = 192;  // of all nodes together, unless there are more runs of blocks
/// Of a block, for the ranks of its own node.
constexpr std::uint64_t own_pieces(std::uint64_t block_bytes, std::uint64_t ranks_of_node) {
  const std::uint64_t most = std::clamp<std::uint64_t>(kMaxOwnTasks / ranks_of_node, 1, 8);
  return std::clamp<std::uint64_t>(block_bytes / kRingTaskBytes, 1, most);
}
constexpr bool ring_fits_tasks(std::uint64_t pieces, std::uint64_t ranks_of_node) {
  return pieces <= kMaxRingPieces && ranks_of_node <= kMaxOwnTasks;
}

// alltoall/pairwise.
inline constexpr std::uint64_t kMaxPairwisePieces = 4096;  // of all blocks
// Inside a node a piece is copied by one system call, so larger pieces save calls.
inline constexpr std::uint64_t kNearPieceBytes = 1 << 20;
/// How many rounds overlap.
int rounds_in_flight(std::uint64_t block_bytes);

}  // namespace penstock::collectives
