// Into how many pieces planners cut blocks that travel between ranks. Costs that make no plan count the same pieces.
#pragma once

#include <cstdint>

namespace penstock::collectives {

// allgather/ring, and the rings of reduce_scatter: of all blocks, so that the length of plans stays bounded.
inline constexpr std::uint64_t kMaxFlatRingPieces = 2048;
inline constexpr std::uint64_t kMaxReducePartsPieces = 2048;  // parts times segments
inline constexpr std::uint64_t kMultiLeaderSteps = 6144;      // of a plan, if segments can bound it

// allgather/leader_ring.
inline constexpr std::uint64_t kMaxRingPieces = 512;  // of all nodes together, unless there are more runs of blocks
inline constexpr std::uint64_t kRingTaskBytes = 64 << 10;
inline constexpr std::uint64_t kMaxOwnPieces = 8;  // of a block, for the tasks of its own node

// alltoall/pairwise.
inline constexpr std::uint64_t kMaxPairwisePieces = 4096;  // of all blocks
// Inside a node a piece is copied by one system call, so larger pieces save calls.
inline constexpr std::uint64_t kNearPieceBytes = 1 << 20;
/// How many rounds overlap.
int rounds_in_flight(std::uint64_t block_bytes);

}  // namespace penstock::collectives
