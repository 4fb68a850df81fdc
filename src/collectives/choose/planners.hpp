// The planners that several rows of algorithms.def use. `algorithm` is the name of the row: "scan/chain".
#pragma once

#include <cstddef>
#include <string>

#include "collectives/parts/arguments.hpp"
#include "collectives/parts/exchange.hpp"
#include "collectives/parts/flag_rounds.hpp"
#include "collectives/parts/leaders.hpp"

namespace penstock::collectives {

/// alltoall, alltoallv and alltoallw.
Plan exchange_pairwise(const std::string& algorithm, const Team& team, const Collective& collective);

/// All neighbourhood collectives.
Plan neighbor_direct(const std::string& algorithm, const Team& team, const Collective& collective);
/// neighbor_allgather and neighbor_alltoall.
Plan neighbor_shared(const std::string& algorithm, const Team& team, const Collective& collective);
Plan neighbor_combined(const std::string& algorithm, const Team& team, const Collective& collective);
/// What leaves the nodes.
struct Crossing {
  std::size_t edges = 0;
  std::size_t node_pairs = 0;  ///< ordered pairs of nodes that have an edge
  std::size_t of_rank = 0;     ///< the most messages between nodes that a rank sends and receives if none are combined
  std::size_t of_leader = 0;   ///< the most that a leader sends and receives if all are, those of its node included
};
Crossing crossing_of(const Team& team, const Graph& graph);

/// allgather and allgatherv.
Plan gather_all_shared(const std::string& algorithm, const Team& team, const Collective& collective);
Plan gather_all_staged(const std::string& algorithm, const Team& team, const Collective& collective);

/// reduce_scatter and reduce_scatter_block.
Plan reduce_parts_ring(const std::string& algorithm, const Team& team, const Collective& collective);
Plan reduce_parts_halving(const std::string& algorithm, const Team& team, const Collective& collective);
Plan reduce_parts_pairwise(const std::string& algorithm, const Team& team, const Collective& collective);
Plan reduce_parts_hierarchical(const std::string& algorithm, const Team& team, const Collective& collective);
Plan reduce_parts_multi_leader(const std::string& algorithm, const Team& team, const Collective& collective);
Plan reduce_parts_divided(const std::string& algorithm, const Team& team, const Collective& collective);
Plan reduce_parts_sorted(const std::string& algorithm, const Team& team, const Collective& collective);

/// reduce, allreduce, reduce_scatter and reduce_scatter_block.
Plan reduce_through_staging(const std::string& algorithm, const Team& team, const Collective& collective);
/// reduce and allreduce.
Plan reduce_sorted_whole(const std::string& algorithm, const Team& team, const Collective& collective);
Plan reduce_sorted_at_once(const std::string& algorithm, const Team& team, const Collective& collective);

/// scan and exscan.
Plan prefix_doubling(const std::string& algorithm, const Team& team, const Collective& collective);
Plan prefix_chain(const std::string& algorithm, const Team& team, const Collective& collective);
Plan prefix_hierarchical(const std::string& algorithm, const Team& team, const Collective& collective);
Plan prefix_divided(const std::string& algorithm, const Team& team, const Collective& collective);
Plan prefix_staged(const std::string& algorithm, const Team& team, const Collective& collective);

/// Among all ranks.
Plan allreduce_by_exchange(const std::string& algorithm, const Team& team, const Collective& collective,
                           AllreduceExchange exchange);
/// Combines inside the nodes, exchanges among the leaders, spreads inside the nodes. With several slots, several ranks
/// of a node each lead a part of the data, for networks that one core cannot saturate (Bayatpour et al. 2017).
struct LeadersExchange {
  AllreduceExchange exchange;
  std::size_t most_slots = 1;
  bool by_messages = false;  ///< inside the nodes: if most ranks lead, few have time for tasks of others
  bool in_chunks = false;    ///< by messages: one is combined inside the nodes while the one before it is exchanged
};
Plan allreduce_by_leaders(const std::string& algorithm, const Team& team, const Collective& collective,
                          const LeadersExchange& by);

}  // namespace penstock::collectives
