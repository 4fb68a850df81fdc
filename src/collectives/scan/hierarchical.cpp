// scan and exscan: a scan inside each node; an exscan of the sums of the nodes among their last ranks; then each rank
// combines the sum of the previous nodes with its result.
// Cost: ceil(log2 ranks) rounds inside the nodes, ceil(log2 nodes) + 1 between, ceil(log2 ranks) inside. Valid if the
// ranks of each node are consecutive; combines in rank order.
#include "collectives/parts/blocks.hpp"
#include "collectives/parts/stage.hpp"
#include "collectives/scan/prefix.hpp"

namespace penstock::collectives {
namespace {

constexpr std::uint32_t kInsideTag = 0;
constexpr std::uint32_t kPrefixBetweenTag = kInsideTag + kDoublingTags;
constexpr std::uint32_t kShiftTag = kPrefixBetweenTag + kDoublingTags;
constexpr std::uint32_t kNeighbourTag = kShiftTag + 1;
constexpr std::uint32_t kDownStage = kNeighbourTag / kStageTags + 1;

}  // namespace

Plan prefix_hierarchical(const std::string& algorithm, const Team& team, const Collective& collective) {
  const auto nodes = ranks_by_node(team);
  const int node = team.node_of_rank[static_cast<std::size_t>(team.rank)];
  const std::vector<int>& local = nodes[static_cast<std::size_t>(node)];
  const int self = team.rank - local.front();
  const bool is_last = team.rank == local.back();
  const bool is_inclusive = collective.kind == CollectiveKind::scan;
  const Region own = contribution(team, collective);
  const Region target = result(team, collective);
  Sequence sequence(algorithm, team);

  // The contribution of the last rank of all is in no result of an exscan.
  std::vector<int> scanning = local;
  if (!is_inclusive && node + 1 == static_cast<int>(nodes.size())) scanning.pop_back();
  const Region inside = is_inclusive ? target : sequence.scratch(own.size_bytes);
  if (self < static_cast<int>(scanning.size())) {
    sequence.copy(own, inside);
    doubling_stage(sequence, scanning, self, inside, kInsideTag);
  }
  if (!is_inclusive) {
    if (!is_last) sequence.send(inside, team.rank + 1, kNeighbourTag);
    if (self > 0) sequence.recv(target, team.rank - 1, kNeighbourTag);
  }

  // The sum over the previous nodes, on the last rank of each node but the first.
  const Region before = node > 0 ? sequence.scratch(own.size_bytes) : Region{};
  if (is_last) {
    if (node + 1 < static_cast<int>(nodes.size()))
      sequence.send(inside, nodes[static_cast<std::size_t>(node) + 1].back(), kShiftTag);
    if (node > 0) {
      std::vector<int> lasts;
      for (std::size_t other = 1; other < nodes.size(); ++other) lasts.push_back(nodes[other].back());
      sequence.recv(before, nodes[static_cast<std::size_t>(node) - 1].back(), kShiftTag);
      doubling_stage(sequence, lasts, node - 1, before, kPrefixBetweenTag);
    }
  }
  if (node > 0) {
    bcast_stage(sequence, tree_of_node(team, node_group(team, local.back())), before, 0, {.number = kDownStage});
    if (!is_inclusive && self == 0)
      sequence.copy(before, target);
    else
      sequence.reduce(before, target);
  }
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
