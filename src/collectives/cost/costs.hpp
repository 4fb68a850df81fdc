// The costs of the rows of algorithms.def: functions of the team, the arguments and the machine that agree with the
// simulation of the plans of all ranks (simulated_seconds) within 10%, in a small part of its time. A row names its
// function; `unpriced` rows have none.
#pragma once

#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "penstock/collective.hpp"
#include "penstock/cost_model.hpp"

namespace penstock::collectives::cost {

struct Call {
  std::string_view row;
  const Team& team;
  const Collective& collective;
  const Machine& machine;
  /// Costs beyond are not wanted: there is none, or it is followed to its end.
  double most_seconds = std::numeric_limits<double>::infinity();
};

/// Time: double, the seconds alone, or Cost. None if the function does not cover the team.
template <class Time>
std::optional<Time> unpriced(const Call&) {
  return std::nullopt;
}

/// The rows of levels.def, for several nodes.
template <class Time>
std::optional<Time> levels(const Call& call);
/// Trees over all ranks: on teams with one rank per node.
template <class Time>
std::optional<Time> flat_tree(const Call& call);

/// Every row: plans and simulates all ranks, if they have few steps together.
template <class Time>
std::optional<Time> few_ranks(const Call& call);
/// The same up to many steps, without a limit on one node: some ms for some thousand steps.
template <class Time>
std::optional<Time> all_ranks(const Call& call);

/// Rows in which all nodes do the same: plans and simulates the ranks of one node, for nodes of equal size. On one
/// node, and with few steps, as all_ranks().
template <class Time>
std::optional<Time> alike_nodes(const Call& call);
/// The same, if each further node adds the same rounds for blocks of one length: a few nodes are simulated.
template <class Time>
std::optional<Time> alike_rounds(const Call& call);
/// As alike_nodes(), if nodes of several ranks are not alike: they drift apart. Those as all_ranks().
template <class Time>
std::optional<Time> alike_ranks(const Call& call);
/// The same for a power of two of nodes; others as all_ranks().
template <class Time>
std::optional<Time> alike_powers_of_two(const Call& call);
/// As all_ranks() for exchanges of halves; with too many steps, or short data, as alike_powers_of_two().
template <class Time>
std::optional<Time> alike_halves(const Call& call);

/// As leaders_in_rounds(); beyond as all_ranks().
template <class Time>
std::optional<Time> alike_rounds_of_leaders(const Call& call);

/// As alike_halves() for chunks that follow each other: of many, the first ones are simulated.
template <class Time>
std::optional<Time> alike_chunks(const Call& call);

/// Rows of allreduce by leaders of nodes, by messages inside nodes of equal size: follows the rounds of one node,
/// without plans, in some microseconds. None for other rows and teams, for parts of few elements, and where this is not
/// exact.
template <class Time>
std::optional<Time> leaders_in_rounds(const Call& call);
/// The radix of exchanges of short messages among `nodes`, by so many leaders of each: as many messages in a round as
/// take less than the rounds that they save.
int best_radix(int nodes, int leaders, std::uint64_t bytes, const Machine& machine);

/// How many ranks the nodes of a team have, and where.
struct NodeSizes {
  int nodes = 0;
  int ranks = 0;  ///< of all nodes
  int smallest = 0;
  int largest = 0;
  int runs = 1;     ///< of ranks that follow each other, of a node
  int domains = 1;  ///< of a node
  int shares = 0;   ///< of as many ranks as the smallest node has, of all nodes, rounded up for each
  /// By a power of two: how many ranks of a node the rank so much further is on another node for. Empty for equal nodes
  /// in blocks.
  std::vector<int> leaving{};
  std::uint64_t all_leave = 0;  ///< of these powers of two (bits), for some node: for all its ranks
};
NodeSizes node_sizes(const Team& team);
/// What a row takes, without plans, in some microseconds: close enough to tell rows apart that differ by a third. The
/// largest node stands for all, and all cores of a node for those of one domain. None for rows that it does not know.
std::optional<double> estimated_seconds(const Call& call, const NodeSizes& sizes);
/// Of it, rows of allreduce and reduce by leaders: as leaders_in_rounds(), also where that is not exact: for data in
/// several segments or chunks, for several leaders of each node among nodes that are no power of two, and by tasks.
std::optional<double> estimated_leaders(const Call& call, const NodeSizes& sizes);
/// Of it, pipelines along trees, of bcast, reduce and allreduce, and broadcasts that scatter.
std::optional<double> estimated_tree(const Call& call, const NodeSizes& sizes);
/// Of it, rows of allgather, alltoall and reduce_scatter_block.
std::optional<double> estimated_exchange(const Call& call, const NodeSizes& sizes);

/// reduce_scatter: if all parts have one length, as the row of reduce_scatter_block of this name; if not, as
/// all_ranks().
template <class Time>
std::optional<Time> equal_parts(const Call& call);

}  // namespace penstock::collectives::cost
