// Into how many pieces planners cut blocks that travel between ranks. Costs that make no plan count the same pieces.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "penstock/cost_model.hpp"

namespace penstock::collectives {

/// Of a short message between ranks of a node: the tail of the queue, the end of the message before it, its own, and
/// that line again when it is given back. Each takes as long as a flag.
inline constexpr int kLinesOfMessage = 4;

/// Into how many pieces a rank cuts `bytes` that it copies into shared memory for each of `readers`, or once for all of
/// them. They copy a piece out as soon as a message tells them of it, and another one gives its memory back. With k
/// pieces, c seconds for a copy of a byte and t for these messages of all readers, the last piece of the last reader
/// has been copied out after
///   copying in + k t + bytes c / k
/// which is least at k = sqrt(bytes c / t). By the times of the model, since inside a node none are measured; half or
/// twice as many pieces add a quarter to what the last two terms take.
std::uint64_t overlapping_pieces(std::uint64_t bytes, std::uint64_t readers);
/// From which on they are two for one reader, 18,000 bytes: k is rounded, so it is 1.5 there.
inline constexpr auto kTwoPiecesBytes = static_cast<std::uint64_t>(
    1.5 * 1.5 * 2 * kLinesOfMessage * Machine::Node{}.flag_seconds / Machine::Node{}.copy_seconds_per_byte);

/// The length of a task on the model's node, of so many seconds per byte: claiming it and its system call take a
/// sixteenth of its time. Rounded down to a power of two.
constexpr std::uint64_t task_bytes(double seconds_per_byte) {
  const Machine::Node node;
  return std::bit_floor(
      static_cast<std::uint64_t>(15 * (node.task_seconds + node.remote_read_seconds) / seconds_per_byte));
}
/// Of tasks that copy to one rank: 128 KiB.
inline constexpr std::uint64_t kCopyTaskBytes = task_bytes(Machine::Node{}.remote_read_seconds_per_byte);
/// Of tasks that combine, or copy to several ranks: 64 KiB. Data of one task are left to messages.
inline constexpr std::uint64_t kTaskBytes =
    task_bytes(Machine::Node{}.remote_read_seconds_per_byte + Machine::Node{}.combine_seconds_per_byte);

// allgather/ring, and the rings of reduce_scatter: of all blocks, so that the length of plans stays bounded.
inline constexpr std::uint64_t kMaxFlatRingPieces = 2048;
inline constexpr std::uint64_t kMaxReducePartsPieces = 2048;  // parts times segments
inline constexpr std::uint64_t kMultiLeaderSteps = 6144;      // of a plan, if segments can bound it

// allgather/leader_ring: tasks of the blocks of a plan's own node, and of each piece of the others. Together they are
// as many as the engine accepts, kMaxTasks.
inline constexpr std::uint64_t kMaxOwnTasks = 256;
inline constexpr std::uint64_t kMaxTasksOfPiece = 4;
inline constexpr std::uint64_t kMaxRingPieces = 192;  // of all nodes together, unless there are more runs of blocks
/// Of a block, for the ranks of its own node.
constexpr std::uint64_t own_pieces(std::uint64_t block_bytes, std::uint64_t ranks_of_node) {
  const std::uint64_t most = std::clamp<std::uint64_t>(kMaxOwnTasks / ranks_of_node, 1, 8);
  return std::clamp<std::uint64_t>(block_bytes / kTaskBytes, 1, most);
}
constexpr bool ring_fits_tasks(std::uint64_t pieces, std::uint64_t ranks_of_node) {
  return pieces <= kMaxRingPieces && ranks_of_node <= kMaxOwnTasks;
}

// alltoall/pairwise.
inline constexpr std::uint64_t kMaxPairwisePieces = 4096;  // of all blocks
// And of neighbours: inside a node a piece is copied by one system call, so larger pieces save calls.
inline constexpr std::uint64_t kNearPieceBytes = 1 << 20;
/// How many rounds overlap.
int rounds_in_flight(std::uint64_t block_bytes);

}  // namespace penstock::collectives
