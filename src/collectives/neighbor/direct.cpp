// Neighbourhood collectives: each rank sends its blocks straight to its destinations, and what an edge back to itself
// carries is copied. Cost: 1 round, each block sent once. Valid for every graph; a rank only knows its own counts.
#include <algorithm>
#include <string>

#include "collectives/choose/planners.hpp"
#include "collectives/parts/blocks.hpp"
#include "collectives/parts/stage.hpp"
#include "penstock/error.hpp"

namespace penstock::collectives {
namespace {

constexpr std::uint32_t kMostEdgePieces = 16;  // of a block: tags are edge * kMostEdgePieces + piece
static_assert(Graph::kMostEdges * kMostEdgePieces - 1 <= kMaxTag);
constexpr std::uint64_t kMostNeighborPieces = 2048;  // bounds the length of the plan
// Inside a node a piece is copied by one system call, so larger pieces save calls.
constexpr std::uint64_t kNearNeighborPieceBytes = 1 << 20;

/// The pieces of a block, and their tags. Sender and receiver compute the same pieces.
template <typename Action>
void for_pieces_of_edge(const Team& team, std::uint64_t most, const Neighbor& peer, Region block,
                        const Action& action) {
  const std::uint64_t count =
      pieces_of(block.size_bytes, team.same_node(team.rank, peer.rank) ? kNearNeighborPieceBytes : 0, most);
  for (std::uint64_t i = 0; i < count; ++i)
    action(part_of(block, block.size_bytes, 1, count, i), peer.edge * kMostEdgePieces + static_cast<std::uint32_t>(i));
}

void copy_own(Sequence& sequence, const Team& team, const Collective& collective, std::size_t from, std::size_t to) {
  const Region sent = send_block(team, collective, static_cast<int>(from));
  const Region received = receive_block(team, collective, static_cast<int>(to));
  if (sent.size_bytes != received.size_bytes)
    throw Error(ErrorCode::invalid_argument,
                std::string(name(collective.kind)) + ": rank " + std::to_string(team.rank) + " sends itself " +
                    std::to_string(sent.size_bytes) + " bytes as neighbour " + std::to_string(from) + " and receives " +
                    std::to_string(received.size_bytes) + " as neighbour " + std::to_string(to) +
                    "; give equal counts");
  sequence.copy(sent, received);
}

}  // namespace

Plan neighbor_direct(const std::string& algorithm, const Team& team, const Collective& collective) {
  Sequence sequence(algorithm, team);
  const Graph& graph = *collective.graph;
  // Equal at both ends of every edge.
  std::size_t degree = 1;
  for (int rank = 0; rank < team.size(); ++rank)
    degree = std::max({degree, graph.sources(rank).size(), graph.destinations(rank).size()});
  const std::uint64_t most = std::clamp<std::uint64_t>(kMostNeighborPieces / degree, 1, kMostEdgePieces);
  const std::span<const Neighbor> sources = sources_of(team, collective);
  const std::span<const Neighbor> destinations = destinations_of(team, collective);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].rank == Neighbor::kNone || sources[i].rank == team.rank) continue;
    for_pieces_of_edge(team, most, sources[i], receive_block(team, collective, static_cast<int>(i)),
                       [&](Region piece, std::uint32_t tag) { sequence.recv(piece, sources[i].rank, tag); });
  }
  for (std::size_t i = 0; i < destinations.size(); ++i) {
    if (destinations[i].rank == Neighbor::kNone) continue;
    if (destinations[i].rank == team.rank)
      copy_own(sequence, team, collective, i, graph.index_at_destination(team.rank, destinations[i]));
    else
      for_pieces_of_edge(team, most, destinations[i], send_block(team, collective, static_cast<int>(i)),
                         [&](Region piece, std::uint32_t tag) { sequence.send(piece, destinations[i].rank, tag); });
  }
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
