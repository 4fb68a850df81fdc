// neighbor_allgather and neighbor_alltoall: what the ranks of a node send to the ranks of another node travels as one
// message between the leaders, the lowest ranks that have neighbours. A rank gives its leader one message with all that
// leaves the node, and gets one with all that has come from other nodes. In neighbor_allgather a block enters a node
// once, however many of its ranks want it. Blocks inside the node go straight to their neighbour. Cost: 3 rounds, one
// message per pair of nodes with an edge. Valid for every graph on several nodes; for short blocks.
#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "collectives/choose/planners.hpp"
#include "collectives/parts/blocks.hpp"
#include "collectives/parts/group.hpp"

namespace penstock::collectives {
namespace {

constexpr std::uint32_t kParcelUpTag = 0;
constexpr std::uint32_t kParcelDownTag = 1;
constexpr std::uint32_t kParcelBetweenTag = 0;  // no other message goes between leaders
constexpr std::uint32_t kFirstNearTag = 2;

/// A block that goes from one node to another.
struct Parcel {
  int sender = 0;
  std::size_t block = 0;  ///< of the sender's destinations; 0 in neighbor_allgather, whose sender has one block
  int receiver = 0;       ///< in neighbor_allgather of the block's way down from the leader

  friend auto operator<=>(const Parcel&, const Parcel&) = default;
};

bool has_neighbors(const Graph& graph, int rank) {
  const auto exists = [](const Neighbor& each) { return each.rank != Neighbor::kNone; };
  return std::ranges::any_of(graph.sources(rank), exists) || std::ranges::any_of(graph.destinations(rank), exists);
}

/// All parcels, equal on all ranks. Both ends of a message have them in the same order.
class Parcels {
 public:
  Parcels(const Team& team, const Collective& collective) : team_(team) {
    const Graph& graph = *collective.graph;
    const bool gathers = collective.kind == CollectiveKind::neighbor_allgather;
    for (int sender = 0; sender < team.size(); ++sender) {
      const std::span<const Neighbor> destinations = graph.destinations(sender);
      for (std::size_t i = 0; i < destinations.size(); ++i) {
        const int receiver = destinations[i].rank;
        if (receiver == Neighbor::kNone || team.same_node(sender, receiver)) continue;
        const Parcel parcel{sender, gathers ? 0 : i, receiver};
        const Parcel between{parcel.sender, parcel.block, gathers ? 0 : receiver};
        up_[sender].insert({node(receiver), {parcel.sender, parcel.block, 0}});
        between_[{node(sender), node(receiver)}].insert(between);
        down_[receiver].insert(parcel);
      }
    }
    // A block that several nodes want leaves its sender once.
    if (gathers)
      for (auto& [sender, parcels] : up_) parcels = {*parcels.begin()};
  }

  int node(int rank) const { return team_.node_of_rank[static_cast<std::size_t>(rank)]; }

  /// From a rank to its leader, by node.
  std::vector<Parcel> up(int sender) const {
    std::vector<Parcel> list;
    if (const auto found = up_.find(sender); found != up_.end())
      for (const auto& [to, parcel] : found->second) list.push_back(parcel);
    return list;
  }
  std::vector<Parcel> between(int from_node, int to_node) const {
    const auto found = between_.find({from_node, to_node});
    return found == between_.end() ? std::vector<Parcel>{}
                                   : std::vector<Parcel>(found->second.begin(), found->second.end());
  }
  std::vector<Parcel> down(int receiver) const {
    const auto found = down_.find(receiver);
    return found == down_.end() ? std::vector<Parcel>{}
                                : std::vector<Parcel>(found->second.begin(), found->second.end());
  }

 private:
  const Team& team_;
  std::map<int, std::set<std::pair<int, Parcel>>> up_;
  std::map<std::pair<int, int>, std::set<Parcel>> between_;
  std::map<int, std::set<Parcel>> down_;
};

/// The plan of one rank.
class Combined {
 public:
  Combined(const std::string& algorithm, const Team& team, const Collective& collective)
      : sequence_(algorithm, team),
        team_(team),
        collective_(collective),
        graph_(*collective.graph),
        parcels_(team, collective),
        nodes_(ranks_by_node(team)),
        own_node_(parcels_.node(team.rank)),
        leader_(leader_of(own_node_)),
        bytes_(block_bytes(collective)) {}

  Plan plan() && {
    if (bytes_ > 0 && has_neighbors(graph_, team_.rank)) {
      send_up();
      exchange_inside();
      if (team_.rank == leader_)
        lead();
      else
        recv_down();
    }
    return finish(std::move(sequence_), team_, collective_);
  }

 private:
  bool gathers() const { return collective_.kind == CollectiveKind::neighbor_allgather; }
  /// MPI ignores the count of a rank without neighbours, so such a rank knows no lengths.
  int leader_of(int node) const {
    const std::vector<int>& ranks = nodes_[static_cast<std::size_t>(node)];
    const auto found = std::ranges::find_if(ranks, [&](int rank) { return has_neighbors(graph_, rank); });
    return found == ranks.end() ? ranks.front() : *found;
  }
  Region own_block(const Parcel& parcel) const {
    return send_block(team_, collective_, static_cast<int>(parcel.block));
  }
  Region scratch_blocks(std::size_t count) { return sequence_.scratch(count * bytes_); }
  Region at(Region blocks, std::size_t index) const {
    return {blocks.offset_bytes + index * bytes_, bytes_, blocks.buffer};
  }

  void send_up() {
    const std::vector<Parcel> leaving = parcels_.up(team_.rank);
    if (team_.rank == leader_ || leaving.empty()) return;
    Region up = own_block(leaving.front());
    if (!gathers()) {
      up = scratch_blocks(leaving.size());
      std::vector<Move> moves;
      for (std::size_t i = 0; i < leaving.size(); ++i) moves.push_back({own_block(leaving[i]), at(up, i)});
      sequence_.move(moves, collective_.item_bytes());
    }
    sequence_.send(up, leader_, kParcelUpTag);
  }

  void exchange_inside() {
    const std::span<const Neighbor> sources = sources_of(team_, collective_);
    const std::span<const Neighbor> destinations = destinations_of(team_, collective_);
    const auto is_near = [&](const Neighbor& each) {
      return each.rank != Neighbor::kNone && team_.same_node(each.rank, team_.rank);
    };
    for (std::size_t i = 0; i < sources.size(); ++i)
      if (is_near(sources[i]) && sources[i].rank != team_.rank)
        sequence_.recv(receive_block(team_, collective_, static_cast<int>(i)), sources[i].rank,
                       kFirstNearTag + sources[i].edge);
    for (std::size_t i = 0; i < destinations.size(); ++i) {
      if (!is_near(destinations[i])) continue;
      const Region block = send_block(team_, collective_, static_cast<int>(i));
      if (destinations[i].rank == team_.rank)
        sequence_.copy(block,
                       receive_block(team_, collective_,
                                     static_cast<int>(graph_.index_at_destination(team_.rank, destinations[i]))));
      else
        sequence_.send(block, destinations[i].rank, kFirstNearTag + destinations[i].edge);
    }
  }

  void lead() {
    const std::vector<int>& local = nodes_[static_cast<std::size_t>(own_node_)];
    std::map<Parcel, Region> leaving;  // where each block lies; its receiver is 0
    for (const int rank : local) {
      const std::vector<Parcel> up = parcels_.up(rank);
      if (up.empty()) continue;
      const Region row = rank == leader_ ? Region{} : scratch_blocks(up.size());
      for (std::size_t i = 0; i < up.size(); ++i)
        leaving[{rank, up[i].block, 0}] = rank == leader_ ? own_block(up[i]) : at(row, i);
      if (rank != leader_) sequence_.recv(row, rank, kParcelUpTag);
    }
    std::map<Parcel, Region> arrived;  // in neighbor_allgather the receiver is 0
    for (std::size_t node = 0; node < nodes_.size(); ++node) {
      const int other = static_cast<int>(node);
      if (other == own_node_) continue;
      const int peer = leader_of(other);
      if (const std::vector<Parcel> list = parcels_.between(own_node_, other); !list.empty()) {
        const Region out = scratch_blocks(list.size());
        // Sources of one step lie in one buffer.
        std::map<Buffer, std::vector<Move>> moves;
        for (std::size_t i = 0; i < list.size(); ++i) {
          const Region from = leaving.at({list[i].sender, list[i].block, 0});
          moves[from.buffer].push_back({from, at(out, i)});
        }
        for (const auto& [buffer, of_buffer] : moves) sequence_.move(of_buffer, collective_.item_bytes());
        sequence_.send(out, peer, kParcelBetweenTag);
      }
      if (const std::vector<Parcel> list = parcels_.between(other, own_node_); !list.empty()) {
        const Region in = scratch_blocks(list.size());
        sequence_.recv(in, peer, kParcelBetweenTag);
        for (std::size_t i = 0; i < list.size(); ++i) arrived[list[i]] = at(in, i);
      }
    }
    for (const int rank : local) {
      const std::vector<Parcel> list = parcels_.down(rank);
      if (list.empty()) continue;
      std::vector<Region> blocks;
      for (const Parcel& parcel : list)
        blocks.push_back(arrived.at({parcel.sender, parcel.block, gathers() ? 0 : parcel.receiver}));
      if (rank == leader_) {
        deliver(list, blocks);
        continue;
      }
      const Region row = scratch_blocks(list.size());
      std::vector<Move> moves;
      for (std::size_t i = 0; i < list.size(); ++i) moves.push_back({blocks[i], at(row, i)});
      sequence_.move(moves, collective_.item_bytes());
      sequence_.send(row, rank, kParcelDownTag);
    }
  }

  void recv_down() {
    const std::vector<Parcel> list = parcels_.down(team_.rank);
    if (list.empty()) return;
    const Region row = scratch_blocks(list.size());
    sequence_.recv(row, leader_, kParcelDownTag);
    std::vector<Region> blocks;
    for (std::size_t i = 0; i < list.size(); ++i) blocks.push_back(at(row, i));
    deliver(list, blocks);
  }

  /// Copies the blocks of the parcels to their places.
  void deliver(const std::vector<Parcel>& list, const std::vector<Region>& blocks) {
    std::vector<Move> moves;
    const std::span<const Neighbor> sources = sources_of(team_, collective_);
    std::map<Parcel, Region> found;
    for (std::size_t i = 0; i < list.size(); ++i) found[list[i]] = blocks[i];
    for (std::size_t i = 0; i < sources.size(); ++i) {
      if (sources[i].rank == Neighbor::kNone || team_.same_node(sources[i].rank, team_.rank)) continue;
      const std::size_t block = gathers() ? 0 : graph_.index_at_source(team_.rank, sources[i]);
      moves.push_back(
          {found.at({sources[i].rank, block, team_.rank}), receive_block(team_, collective_, static_cast<int>(i))});
    }
    sequence_.move(moves, collective_.item_bytes());
  }

  Sequence sequence_;
  const Team& team_;
  const Collective& collective_;
  const Graph& graph_;
  Parcels parcels_;
  std::vector<std::vector<int>> nodes_;
  int own_node_;
  int leader_;
  std::uint64_t bytes_;
};

}  // namespace

Plan neighbor_combined(const std::string& algorithm, const Team& team, const Collective& collective) {
  return Combined(algorithm, team, collective).plan();
}

Crossing crossing_of(const Team& team, const Graph& graph) {
  Crossing crossing;
  std::set<std::pair<int, int>> pairs;
  const auto ranks = static_cast<std::size_t>(team.size());
  std::vector<std::size_t> sent(ranks);
  std::vector<std::size_t> received(ranks);
  std::vector<std::size_t> of_leader(ranks);  // by node
  const auto node = [&](int rank) { return team.node_of_rank[static_cast<std::size_t>(rank)]; };
  for (int rank = 0; rank < team.size(); ++rank)
    for (const Neighbor& to : graph.destinations(rank)) {
      if (to.rank == Neighbor::kNone || team.same_node(rank, to.rank)) continue;
      ++crossing.edges;
      ++sent[static_cast<std::size_t>(rank)];
      ++received[static_cast<std::size_t>(to.rank)];
      if (!pairs.emplace(node(rank), node(to.rank)).second) continue;
      ++of_leader[static_cast<std::size_t>(node(rank))];
      ++of_leader[static_cast<std::size_t>(node(to.rank))];
    }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    crossing.of_rank = std::max(crossing.of_rank, sent[rank] + received[rank]);
    of_leader[static_cast<std::size_t>(node(static_cast<int>(rank)))] += (sent[rank] > 0) + (received[rank] > 0);
  }
  crossing.of_leader = *std::ranges::max_element(of_leader);
  crossing.node_pairs = pairs.size();
  return crossing;
}

}  // namespace penstock::collectives
