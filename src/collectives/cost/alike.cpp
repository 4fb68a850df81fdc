// The costs of algorithms in which all nodes do the same: the plans of one node are simulated, which sends to itself.
#include <algorithm>
#include <bit>
#include <numeric>
#include <span>
#include <vector>

#include "collectives/cost/costs.hpp"
#include "collectives/parts/arguments.hpp"
#include "collectives/parts/group.hpp"
#include "plan/alike_nodes.hpp"
#include "plan/eager.hpp"

namespace penstock::collectives::cost {
namespace {

// Steps of all ranks together that are simulated one by one.
constexpr std::size_t kFewSteps = 1500;
constexpr std::size_t kManySteps = 10'000;  // if there is no other way

const Algorithm& row_of(const Call& call) {
  for (const Algorithm& row : algorithms())
    if (row.kind == call.collective.kind && row.name == call.row) return row;
  return algorithms().front();  // not reached: the caller is a row
}

template <class Time>
std::optional<Time> time_of(const Call& call, std::span<const int> ranks, std::size_t most_steps = ~std::size_t{0}) {
  const Algorithm& row = row_of(call);
  // Planning for a rank looks at all ranks.
  const std::size_t steps_per_plan = static_cast<std::size_t>(call.team.size()) / 16;
  if (steps_per_plan > most_steps / ranks.size()) return std::nullopt;
  Team team = call.team;
  std::vector<Plan> plans;
  std::size_t steps = 0;
  for (const int rank : ranks) {
    team.rank = rank;
    plans.push_back(row.plan(team, call.collective));
    steps += plans.back().steps.size() + steps_per_plan;
    if (steps > most_steps) return std::nullopt;
  }
  return plan::time_of_alike_nodes<Time>(plans, team, call.machine);
}

template <class Time>
std::optional<Time> time_of_all(const Call& call, std::size_t most_steps) {
  std::vector<int> ranks(static_cast<std::size_t>(call.team.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return time_of<Time>(call, ranks, most_steps);
}

bool are_equal(std::span<const std::vector<int>> nodes) {
  return std::ranges::all_of(nodes, [&](const std::vector<int>& node) { return node.size() == nodes[0].size(); });
}

}  // namespace

template <class Time>
std::optional<Time> few_ranks(const Call& call) {
  return time_of_all<Time>(call, kFewSteps);
}

template <class Time>
std::optional<Time> all_ranks(const Call& call) {
  return time_of_all<Time>(call, node_count(call.team) == 1 ? ~std::size_t{0} : kManySteps);
}

// The first node can be special: it has no data to rotate.
template <class Time>
std::optional<Time> alike_nodes(const Call& call) {
  if (node_count(call.team) == 1) return all_ranks<Time>(call);
  if (const std::optional<Time> time = few_ranks<Time>(call)) return time;
  const std::vector<std::vector<int>> nodes = ranks_by_node(call.team, 0);
  return are_equal(nodes) ? time_of<Time>(call, nodes.back(), kManySteps) : std::nullopt;
}

template <class Time>
std::optional<Time> alike_ranks(const Call& call) {
  return node_count(call.team) == call.team.size() ? alike_nodes<Time>(call) : all_ranks<Time>(call);
}

template <class Time>
std::optional<Time> alike_powers_of_two(const Call& call) {
  // With several segments nodes drift apart.
  const bool are_alike = std::has_single_bit(static_cast<unsigned>(node_count(call.team))) &&
                         block_bytes(call.collective) <= plan::kEagerBytes;
  return are_alike ? alike_nodes<Time>(call) : all_ranks<Time>(call);
}

#define PENSTOCK_COST(name)                                 \
  template std::optional<double> name<double>(const Call&); \
  template std::optional<Cost> name<Cost>(const Call&);
PENSTOCK_COST(few_ranks)
PENSTOCK_COST(all_ranks)
PENSTOCK_COST(alike_nodes)
PENSTOCK_COST(alike_ranks)
PENSTOCK_COST(alike_powers_of_two)
#undef PENSTOCK_COST

}  // namespace penstock::collectives::cost
