// The costs of algorithms in which all nodes do the same: the plans of one node are simulated, which sends to itself.
#include <algorithm>
#include <bit>
#include <span>
#include <vector>

#include "collectives/cost/costs.hpp"
#include "collectives/parts/group.hpp"
#include "plan/alike_nodes.hpp"

namespace penstock::collectives::cost {
namespace {

const Algorithm& row_of(const Call& call) {
  for (const Algorithm& row : algorithms())
    if (row.kind == call.collective.kind && row.name == call.row) return row;
  return algorithms().front();  // not reached: the caller is a row
}

// Of few nodes all are simulated, so their time is exact.
constexpr std::size_t kFewNodes = 4;

template <class Time>
std::optional<Time> time_of(const Call& call, std::span<const std::vector<int>> nodes) {
  const Algorithm& row = row_of(call);
  Team team = call.team;
  std::vector<Plan> plans;
  for (const std::vector<int>& node : nodes)
    for (const int rank : node) {
      team.rank = rank;
      plans.push_back(row.plan(team, call.collective));
    }
  return plan::time_of_alike_nodes<Time>(plans, team, call.machine);
}

bool are_equal(std::span<const std::vector<int>> nodes) {
  return std::ranges::all_of(nodes, [&](const std::vector<int>& node) { return node.size() == nodes[0].size(); });
}

}  // namespace

// The first node can be special: it has no data to rotate.
template <class Time>
std::optional<Time> alike_nodes(const Call& call) {
  const std::vector<std::vector<int>> nodes = ranks_by_node(call.team, 0);
  if (nodes.size() <= kFewNodes) return time_of<Time>(call, nodes);
  if (!are_equal(nodes)) return std::nullopt;
  return time_of<Time>(call, std::span(nodes).last(1));
}

template <class Time>
std::optional<Time> alike_powers_of_two(const Call& call) {
  if (!std::has_single_bit(static_cast<unsigned>(node_count(call.team)))) return std::nullopt;
  return alike_nodes<Time>(call);
}

template <class Time>
std::optional<Time> alike_to_first(const Call& call) {
  const std::vector<std::vector<int>> nodes = ranks_by_node(call.team, call.collective.root);
  if (nodes.size() <= kFewNodes) return time_of<Time>(call, nodes);
  if (!are_equal(nodes)) return std::nullopt;
  const ExtraRanks extras(static_cast<int>(nodes.size()));
  std::vector<int> some{0};
  if (extras.extra > 0) some.push_back(1);
  for (int sender = 1; sender < extras.full; sender *= 2) some.push_back(extras.position(sender));
  std::vector<std::vector<int>> followed;
  for (const int each : some) followed.push_back(nodes[static_cast<std::size_t>(each)]);
  return time_of<Time>(call, followed);
}

template <class Time>
std::optional<Time> alike_pairs(const Call& call) {
  const std::vector<std::vector<int>> nodes = ranks_by_node(call.team, 0);
  if (nodes.size() <= kFewNodes || std::has_single_bit(nodes.size())) return alike_nodes<Time>(call);
  if (!are_equal(nodes)) return std::nullopt;
  return time_of<Time>(call, std::span(nodes).first(2));
}

template std::optional<double> alike_nodes<double>(const Call&);
template std::optional<Cost> alike_nodes<Cost>(const Call&);
template std::optional<double> alike_pairs<double>(const Call&);
template std::optional<Cost> alike_pairs<Cost>(const Call&);
template std::optional<double> alike_to_first<double>(const Call&);
template std::optional<Cost> alike_to_first<Cost>(const Call&);
template std::optional<double> alike_powers_of_two<double>(const Call&);
template std::optional<Cost> alike_powers_of_two<Cost>(const Call&);

}  // namespace penstock::collectives::cost
