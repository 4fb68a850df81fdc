// reduce_scatter and reduce_scatter_block: the ranks of a node combine everything at their leader. The leaders exchange
// and combine the parts of each other's nodes, and scatter the parts inside their nodes. Cost: ceil(log2 ranks) rounds
// inside a node, one message per pair of nodes, 1 round inside. Valid on several nodes, of any sizes and with ranks in
// any order; for short parts.
#include <algorithm>
#include <numeric>
#include <vector>

#include "collectives/parts/blocks.hpp"
#include "collectives/parts/stage.hpp"

namespace penstock::collectives {
namespace {

constexpr std::uint32_t kInsideStage = 0;
constexpr std::uint32_t kReducePartsBetweenTag = kStageTags;
constexpr std::uint32_t kReducePartsDownTag = kStageTags + 1;

/// The segments in the order in which the leader of `own_node` sends their parts. If all leaders began with the same
/// part, they would wait for the link of its node.
std::vector<std::uint32_t> order_of(const Segments& segments, const Team& team, const Collective& collective,
                                    const std::vector<std::vector<int>>& nodes, std::size_t own_node) {
  const Region own = contribution(team, collective);
  std::vector<std::uint32_t> all(segments.count());
  std::iota(all.begin(), all.end(), 0u);
  std::vector<bool> is_listed(all.size());
  std::vector<std::uint32_t> order;
  for (std::size_t step = 1; step <= nodes.size(); ++step)
    for (const int rank : nodes[(own_node + step) % nodes.size()]) {
      const Region part = part_of_rank(own, collective, rank);
      auto segment = std::ranges::partition_point(all, [&](std::uint32_t s) {
        const Region each = segments.of(own, s);
        return each.offset_bytes + each.size_bytes <= part.offset_bytes;
      });
      for (; segment != all.end() && segments.of(own, *segment).offset_bytes < part.offset_bytes + part.size_bytes;
           ++segment) {
        if (is_listed[*segment]) continue;
        is_listed[*segment] = true;
        order.push_back(*segment);
      }
    }
  return order;
}

}  // namespace

Plan reduce_parts_hierarchical(const std::string& algorithm, const Team& team, const Collective& collective) {
  const auto nodes = ranks_by_node(team);
  const auto own_node = static_cast<std::size_t>(team.node_of_rank[static_cast<std::size_t>(team.rank)]);
  const std::vector<int>& local = nodes[own_node];
  const int leader = local.front();
  const Region own = contribution(team, collective);
  const Region target = result(team, collective);
  Sequence sequence(algorithm, team);

  Collective all = collective;
  all.count = all_elements(team, collective);
  const Segments segments(all);
  ReduceStage inside(sequence, tree_of_node(team, node_group(team, leader)), segments, {.number = kInsideStage});
  const bool has_sums = team.rank == leader && local.size() > 1;
  const Region sums = has_sums ? sequence.scratch(own.size_bytes) : Region{};
  for (const std::uint32_t s : order_of(segments, team, collective, nodes, own_node))
    inside.run(s, segments.of(own, s), has_sums ? segments.of(sums, s) : Region{});
  if (team.rank != leader) {
    sequence.recv(target, leader, kReducePartsDownTag);
    return finish(std::move(sequence), team, collective);
  }

  // Packs the parts of each node.
  const Region of_node = has_sums ? sums : own;
  const auto bytes_of = [&](std::size_t node) {
    std::uint64_t bytes = 0;
    for (const int rank : nodes[node]) bytes += part_of_rank(of_node, collective, rank).size_bytes;
    return bytes;
  };
  const auto pack = [&](std::size_t node) {
    const Region packed = sequence.scratch(bytes_of(node));
    std::vector<Move> moves;
    std::uint64_t at_bytes = packed.offset_bytes;
    for (const int rank : nodes[node]) {
      const Region part = part_of_rank(of_node, collective, rank);
      moves.push_back({part, {at_bytes, part.size_bytes, Buffer::scratch}});
      at_bytes += part.size_bytes;
    }
    sequence.move(moves, size_bytes(collective.dtype));
    return packed;
  };
  for (std::size_t step = 1; step < nodes.size(); ++step) {
    const std::size_t node = (own_node + step) % nodes.size();
    sequence.send(pack(node), nodes[node].front(), kReducePartsBetweenTag);
  }
  const Region mine = pack(own_node);
  for (std::size_t step = 1; step < nodes.size(); ++step) {
    const std::size_t node = (own_node + nodes.size() - step) % nodes.size();
    const Region landing = sequence.scratch(mine.size_bytes);
    sequence.recv(landing, nodes[node].front(), kReducePartsBetweenTag);
    sequence.reduce(landing, mine);
  }
  std::uint64_t at_bytes = mine.offset_bytes;
  for (const int rank : local) {
    const Region part{at_bytes, part_of_rank(own, collective, rank).size_bytes, Buffer::scratch};
    at_bytes += part.size_bytes;
    if (rank == team.rank)
      sequence.copy(part, target);
    else
      sequence.send(part, rank, kReducePartsDownTag);
  }
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
