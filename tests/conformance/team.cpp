#include "conformance/team.hpp"

#include <algorithm>
#include <numeric>
#include <ostream>
#include <random>
#include <set>

#include "conformance/reference.hpp"
#include "plan/order.hpp"
#include "plan/step_graph.hpp"

namespace penstock {

void PrintTo(const Algorithm* row, std::ostream* out) { *out << name(row->kind) << '_' << row->name; }

namespace conformance {

std::vector<const Algorithm*> rows(bool (*wanted)(CollectiveKind)) {
  std::vector<const Algorithm*> chosen;
  for (const Algorithm& row : algorithms())
    if (wanted(row.kind)) chosen.push_back(&row);
  return chosen;
}

std::string row_name(const testing::TestParamInfo<const Algorithm*>& instance) {
  return std::string(name(instance.param->kind)) + "_" + std::string(instance.param->name);
}

std::vector<std::int32_t> place(Placement placement, int size) {
  std::vector<std::int32_t> nodes(static_cast<std::size_t>(size));
  if (placement == Placement::one_node) return nodes;
  if (placement == Placement::alone) {
    std::iota(nodes.begin(), nodes.end(), 0);
    return nodes;
  }
  int node = 0;
  for (int rank = 0; rank < size; ++node)  // nodes of 1, 2, 3, … ranks
    for (int i = 0; i <= node && rank < size; ++i) nodes[static_cast<std::size_t>(rank++)] = node;
  if (placement == Placement::shuffled) {
    std::shuffle(nodes.begin(), nodes.end(), std::mt19937(static_cast<unsigned>(size)));
    std::vector<std::int32_t> renumbered(nodes.size(), -1);  // in order of first appearance
    std::int32_t next = 0;
    for (std::int32_t& own : nodes) {
      std::int32_t& number = renumbered[static_cast<std::size_t>(own)];
      if (number < 0) number = next++;
      own = number;
    }
  }
  return nodes;
}

bool fits(const Algorithm& row, const Collective& collective, const Team& team) {
  return row.fits(team, request_of(collective, team.rank, team.size()));
}

Placement fitting_placement(const Collective& collective, int size) {
  for (const Algorithm& row : algorithms())
    if (row.kind == collective.kind && row.name == collective.algorithm &&
        !fits(row, collective, Team{0, place(Placement::unequal, size)}))
      return Placement::one_node;
  return Placement::unequal;
}

std::vector<std::int32_t> domains_in(const std::vector<std::int32_t>& nodes) {
  if (nodes.size() % 2 == 0) return {};
  std::mt19937 random(static_cast<unsigned>(nodes.size()));
  std::vector<std::int32_t> domains;
  for (const std::int32_t node : nodes) domains.push_back(3 * node + static_cast<std::int32_t>(random() % 3));
  return domains;
}

std::vector<Plan> plan_all(const Collective& collective, const std::vector<std::int32_t>& nodes, int progress_cores) {
  const std::vector<std::int32_t> domains = domains_in(nodes);
  std::vector<Plan> plans;
  for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(nodes.size()); ++rank)
    plans.push_back(plan_collective(
        Team{.rank = rank, .node_of_rank = nodes, .progress_cores = progress_cores, .domain_of_rank = domains},
        request_of(collective, rank, static_cast<int>(nodes.size()))));
  return plans;
}

bool synchronizes(std::span<const Plan> plans) {
  plan::Events events(plans);
  const plan::StepGraph graph(plans, {});
  for (plan::StepGraph::Index step = 0; step < graph.size(); ++step)
    if (plan::produces(graph.step(step)) && graph.partner(step) != plan::StepGraph::kNone)
      events.add(events.start(step), events.end(graph.partner(step)));
  for (std::size_t from = 0; from < plans.size(); ++from) {
    std::set<std::size_t> reached{from};
    for (StepId id = 0; id < plans[from].steps.size(); ++id) {
      const std::vector<bool> after = events.reachable(events.start(from, id), true);
      for (std::size_t to = 0; to < plans.size(); ++to)
        for (StepId other = 0; other < plans[to].steps.size(); ++other)
          if (after[events.end(to, other)]) reached.insert(to);
    }
    if (reached.size() < plans.size()) return false;
  }
  return true;
}

}  // namespace conformance
}  // namespace penstock
