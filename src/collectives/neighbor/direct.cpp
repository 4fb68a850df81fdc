// Neighbourhood collectives: each rank sends its blocks straight to its destinations, and what an edge back to itself
// carries is copied. What is equal for several edges to one rank is sent once, and short blocks for one rank travel as
// one message. Cost: 1 round, each block sent once. Valid for every graph; a rank only knows its own counts.
#include <algorithm>
#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "collectives/choose/planners.hpp"
#include "collectives/parts/blocks.hpp"
#include "collectives/parts/pieces.hpp"
#include "collectives/parts/stage.hpp"
#include "penstock/cost_model.hpp"
#include "penstock/error.hpp"

namespace penstock::collectives {
namespace {

constexpr std::uint32_t kMostEdgePieces = 16;  // of a block: tags are edge * kMostEdgePieces + piece
static_assert(Graph::kMostEdges * kMostEdgePieces - 1 <= kMaxTag);
constexpr std::uint64_t kMostNeighborPieces = 2048;  // bounds the length of the plan

struct EdgeBlock {
  std::uint32_t edge;
  Region block;
  int place;  ///< among the neighbours
};

/// The blocks for another rank, or from it, in the order of their edges, which is the same at both ends.
struct Bundle {
  int peer;
  std::vector<EdgeBlock> blocks;

  std::uint32_t first_tag() const { return blocks.front().edge * kMostEdgePieces; }
};

template <typename BlockOf>
std::vector<Bundle> bundles(const Team& team, std::span<const Neighbor> neighbors, const BlockOf& block_of) {
  std::vector<Bundle> made;
  std::unordered_map<int, std::size_t> index;
  for (std::size_t i = 0; i < neighbors.size(); ++i) {
    const int peer = neighbors[i].rank;
    if (peer == Neighbor::kNone || peer == team.rank) continue;
    const auto [at, is_new] = index.emplace(peer, made.size());
    if (is_new) made.push_back({peer, {}});
    const int place = static_cast<int>(i);
    made[at->second].blocks.push_back({neighbors[i].edge, block_of(place), place});
  }
  for (Bundle& bundle : made) std::ranges::sort(bundle.blocks, {}, &EdgeBlock::edge);
  return made;
}

/// Whether one message for all blocks takes no longer than one for each, though both ends copy them once more. Equal at
/// both ends if all lengths are.
bool packs(const Bundle& bundle) {
  const Machine::Node node;
  std::uint64_t bytes = 0;
  std::uint64_t messages = 0;
  for (const EdgeBlock& each : bundle.blocks) {
    bytes += each.block.size_bytes;
    messages += each.block.size_bytes > 0 ? 1 : 0;
  }
  return messages > 1 && 2 * static_cast<double>(bytes) * node.copy_seconds_per_byte <=
                             static_cast<double>(messages - 1) * node.flag_seconds;
}

/// The memory of a packed message: that of the blocks if they follow each other there, else scratch memory.
struct Packed {
  Region all;
  std::vector<Move> out;  ///< from the blocks; empty if they are not moved
};

Packed packed(Sequence& sequence, const Bundle& bundle) {
  Region all{0, 0, bundle.blocks.front().block.buffer};
  bool is_run = true;
  for (const EdgeBlock& each : bundle.blocks) {
    if (each.block.size_bytes == 0) continue;
    if (all.size_bytes == 0) all.offset_bytes = each.block.offset_bytes;
    is_run = is_run && each.block.offset_bytes == all.offset_bytes + all.size_bytes;
    all.size_bytes += each.block.size_bytes;
  }
  if (is_run) return {all, {}};
  Packed made{sequence.scratch(all.size_bytes), {}};
  std::uint64_t at = made.all.offset_bytes;
  for (const EdgeBlock& each : bundle.blocks) {
    made.out.push_back({each.block, {at, each.block.size_bytes, made.all.buffer}});
    at += each.block.size_bytes;
  }
  return made;
}

/// The pieces of blocks of this length, as a function of the block, and what they add to the block's tag. Sender and
/// receiver compute the same pieces.
template <typename Action>
void for_pieces(const Team& team, std::uint64_t most, int peer, std::uint64_t size_bytes, const Action& action) {
  const std::uint64_t count = pieces_of(size_bytes, team.same_node(team.rank, peer) ? kNearPieceBytes : 0, most);
  for (std::uint64_t i = 0; i < count; ++i)
    action([&](Region block) { return part_of(block, block.size_bytes, 1, count, i); }, static_cast<std::uint32_t>(i));
}

void check_equal(const Team& team, const Collective& collective, const Bundle& bundle) {
  const EdgeBlock& first = bundle.blocks.front();
  for (const EdgeBlock& each : bundle.blocks)
    if (each.block.size_bytes != first.block.size_bytes)
      throw Error(ErrorCode::invalid_argument,
                  std::string(name(collective.kind)) + ": rank " + std::to_string(team.rank) + " receives " +
                      std::to_string(first.block.size_bytes) + " bytes of rank " + std::to_string(bundle.peer) +
                      " as neighbour " + std::to_string(first.place) + " and " + std::to_string(each.block.size_bytes) +
                      " as neighbour " + std::to_string(each.place) + ", but it sends all the same; give equal counts");
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
  const bool gathers =
      collective.kind == CollectiveKind::neighbor_allgather || collective.kind == CollectiveKind::neighbor_allgatherv;
  std::vector<Move> unpacked;
  for (const Bundle& from :
       bundles(team, sources_of(team, collective), [&](int i) { return receive_block(team, collective, i); })) {
    if (gathers) check_equal(team, collective, from);
    if (!gathers && packs(from)) {
      const Packed whole = packed(sequence, from);
      sequence.recv(whole.all, from.peer, from.first_tag());
      for (const Move& each : whole.out) unpacked.push_back({each.to, each.from});
      continue;
    }
    for (const EdgeBlock& each : from.blocks)
      for_pieces(team, most, from.peer, each.block.size_bytes, [&](const auto& piece, std::uint32_t tag) {
        if (gathers && &each != &from.blocks.front())
          sequence.copy(piece(from.blocks.front().block), piece(each.block));
        else
          sequence.recv(piece(each.block), from.peer, each.edge * kMostEdgePieces + tag);
      });
  }
  const std::span<const Neighbor> destinations = destinations_of(team, collective);
  for (const Bundle& to : bundles(team, destinations, [&](int i) { return send_block(team, collective, i); })) {
    if (!gathers && packs(to)) {
      const Packed whole = packed(sequence, to);
      sequence.move(whole.out, collective.item_bytes());
      sequence.send(whole.all, to.peer, to.first_tag());
      continue;
    }
    for (const EdgeBlock& each : to.blocks) {
      for_pieces(team, most, to.peer, each.block.size_bytes, [&](const auto& piece, std::uint32_t tag) {
        sequence.send(piece(each.block), to.peer, each.edge * kMostEdgePieces + tag);
      });
      if (gathers) break;
    }
  }
  for (std::size_t i = 0; i < destinations.size(); ++i)
    if (destinations[i].rank == team.rank)
      copy_own(sequence, team, collective, i, graph.index_at_destination(team.rank, destinations[i]));
  sequence.move(unpacked, collective.item_bytes());
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
