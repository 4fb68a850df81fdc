// What the arguments of a collective mean in bytes, and the predicates of algorithms.def.
#pragma once

#include "penstock/collective.hpp"
#include "penstock/plan.hpp"
#include "plan/sequence.hpp"

namespace penstock::collectives {

using plan::Move;
using plan::Sequence;

bool any_team(const Team& team, const Collective& collective);
bool power_of_two(const Team& team, const Collective& collective);
/// All ranks share memory, and the data of all of them is small beside what a node has of it.
bool small_on_one_node(const Team& team, const Collective& collective);
/// All ranks are on one node and can read and write each other's memory.
bool shared_node(const Team& team, const Collective& collective);
/// Several nodes, whose ranks can read and write each other's memory; not every rank on a node of its own.
bool shared_nodes(const Team& team, const Collective& collective);

/// Several nodes, not every rank on a node of its own.
bool several_nodes(const Team& team, const Collective& collective);
/// several_nodes, and the ranks of each node follow each other.
bool nodes_in_order(const Team& team, const Collective& collective);
/// shared_node, with few enough ranks that each pair of them can have a task.
bool shared_pairs(const Team& team, const Collective& collective);
/// All ranks are on one node, whose shared memory has room for staging buffers, and the plan is not too long
/// (staging.hpp).
bool node_staging(const Team& team, const Collective& collective);
/// The same for messages that are not cut into parts for the ranks.
bool node_whole_staging(const Team& team, const Collective& collective);

/// Bytes of what one rank contributes or, for a broadcast, receives.
std::uint64_t block_bytes(const Collective& collective);

/// Where this rank's contribution lies: in the input or, in place, in the output.
Region contribution(const Team& team, const Collective& collective);
/// The whole receive buffer of this rank, empty where MPI says that it is not significant.
Region result(const Team& team, const Collective& collective);

/// The block of one rank, and neighbouring blocks, in a buffer that holds those of all ranks.
struct Run {
  int first;
  int count;
};
Region blocks_of(Region all, const Collective& collective, Run run);
Region block_of(Region all, const Collective& collective, int rank);

/// Where the block lies that this rank sends to `peer` (alltoall and scatter and their variants with counts), and the
/// one that it receives from `peer` (alltoall, gather, allgather, and with counts); empty where it has none.
Region send_block(const Team& team, const Collective& collective, int peer);
Region receive_block(const Team& team, const Collective& collective, int peer);
/// The parts of `run` in a buffer that all ranks contribute to reduce_scatter or reduce_scatter_block.
Region parts_of(Region all, const Collective& collective, Run run);
Region part_of_rank(Region all, const Collective& collective, int rank);
/// Elements of the part of `rank`, and of all of them.
std::uint64_t part_elements(const Collective& collective, int rank);
std::uint64_t all_elements(const Team& team, const Collective& collective);

/// The plan, with the buffer sizes that `collective` means on this rank.
Plan finish(Sequence&& sequence, const Team& team, const Collective& collective);

}  // namespace penstock::collectives
