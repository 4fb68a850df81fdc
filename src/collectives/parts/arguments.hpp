// The arguments of a collective in bytes, and the predicates `fits` of algorithms.def.
#pragma once

#include <span>

#include "penstock/collective.hpp"
#include "penstock/plan.hpp"
#include "plan/sequence.hpp"

namespace penstock::collectives {

using plan::Move;
using plan::Sequence;

/// The engine's minimum, if it has shared memory.
inline constexpr std::uint64_t kSharedBytesPerRank = 64 << 10;

bool any_team(const Team& team, const Collective& collective);
bool power_of_two(const Team& team, const Collective& collective);
/// All ranks are on one node, and the data of all of them is small compared with the node's shared memory.
bool small_on_one_node(const Team& team, const Collective& collective);
/// All ranks are on one node, and few enough that a rank can tell each other one a length (Boxes). For gatherv and
/// scatterv.
bool boxes_on_one_node(const Team& team, const Collective& collective);
/// small_on_one_node() of a neighbourhood, whose ranks publish a block for each destination.
bool small_neighborhood(const Team& team, const Collective& collective);
/// All ranks are on one node and can access each other's memory (Team::single_copy).
bool shared_node(const Team& team, const Collective& collective);
/// Several nodes, at least one of which has several ranks; ranks of a node can access each other's memory.
bool shared_nodes(const Team& team, const Collective& collective);

/// Several nodes, at least one of which has several ranks.
bool several_nodes(const Team& team, const Collective& collective);
/// several_nodes(), and the ranks of each node are consecutive.
bool nodes_in_order(const Team& team, const Collective& collective);
/// shared_node(), with few enough ranks that each pair of ranks can have a task.
bool shared_pairs(const Team& team, const Collective& collective);
/// All ranks are on one node, whose shared memory has room for the staging buffers (staging.hpp), and the plan is not
/// too long.
bool node_staging(const Team& team, const Collective& collective);
/// The same for data that is not divided among the ranks.
bool node_whole_staging(const Team& team, const Collective& collective);

/// reduce_scatter or reduce_scatter_block.
bool is_reduce_scatter(CollectiveKind kind);
/// scan or exscan.
bool is_prefix(CollectiveKind kind);

/// The bytes that one rank contributes or, in a broadcast, receives.
std::uint64_t block_bytes(const Collective& collective);

/// The same of the longest block, if the ranks have different ones and all know their counts.
std::uint64_t longest_block_bytes(const Team& team, const Collective& collective);

/// This rank's contribution: in the input, or with in_place in the output.
Region contribution(const Team& team, const Collective& collective);
/// The receive buffer of this rank; empty if MPI says that it is not significant.
Region result(const Team& team, const Collective& collective);

/// Consecutive blocks in a buffer that has one block per rank.
struct Run {
  int first;
  int count;
};
Region blocks_of(Region all, const Collective& collective, Run run);
Region block_of(Region all, const Collective& collective, int rank);

/// The block that this rank sends to `peer` (alltoall, scatter and their variants), and the one that it receives from
/// `peer` (alltoall, gather, allgather and their variants). Empty if there is none.
Region send_block(const Team& team, const Collective& collective, int peer);
Region receive_block(const Team& team, const Collective& collective, int peer);
/// In a neighbourhood `peer` is an index of destinations_of() and of sources_of().
std::span<const Neighbor> sources_of(const Team& team, const Collective& collective);
std::span<const Neighbor> destinations_of(const Team& team, const Collective& collective);
/// The parts of the ranks in `run`, in a buffer that a rank contributes to reduce_scatter or reduce_scatter_block.
Region parts_of(Region all, const Collective& collective, Run run);
Region part_of_rank(Region all, const Collective& collective, int rank);
/// Elements of the part of `rank`, and of all parts.
std::uint64_t part_elements(const Collective& collective, int rank);
std::uint64_t all_elements(const Team& team, const Collective& collective);

/// The plan, with the buffer sizes of `collective` on this rank.
Plan finish(Sequence&& sequence, const Team& team, const Collective& collective);

}  // namespace penstock::collectives
