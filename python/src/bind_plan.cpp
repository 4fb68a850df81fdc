// _penstock.plan: plans of collectives for any team, without a communicator. penstock.plan is the public module.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "penstock/choice_by_cost.hpp"
#include "penstock/collective.hpp"
#include "penstock/cost_model.hpp"
#include "penstock/error.hpp"
#include "penstock/plan.hpp"

namespace nb = nanobind;
using namespace penstock;

namespace {

Collective collective(const std::string& kind, std::uint64_t count, const std::string& dtype, const std::string& op,
                      int root, bool in_place, const std::string& algorithm, std::uint64_t segment_bytes, int split,
                      int radix, bool reproducible, const std::vector<std::int32_t>& grid, bool periodic) {
  const auto dimensions = std::vector<bool>(grid.size(), periodic);
  return {.kind = collective_kind_from_name(kind),
          .count = count,
          .dtype = dtype_from_name(dtype),
          .op = reduce_op_from_name(op),
          .reproducible = reproducible,
          .root = root,
          .in_place = in_place,
          .algorithm = algorithm,
          .segment_bytes = segment_bytes,
          .split = split,
          .radix = radix,
          .graph = grid.empty() ? nullptr : std::make_shared<const Graph>(Graph::cartesian(grid, dimensions))};
}

std::vector<std::tuple<std::string, std::string, std::string>> algorithm_rows() {
  std::vector<std::tuple<std::string, std::string, std::string>> rows;
  for (const Algorithm& row : algorithms()) rows.emplace_back(name(row.kind), row.name, row.cost);
  return rows;
}

/// `network`: the name of a class, or empty.
Team team(std::int32_t rank, const std::vector<std::int32_t>& nodes, std::int32_t progress_cores,
          const std::string& network = "") {
  Team team{.rank = rank, .node_of_rank = nodes, .progress_cores = progress_cores};
  if (!network.empty()) team.by_cost = std::make_shared<const ChoiceByCost>(team, machine_with(network));
  return team;
}

std::tuple<std::string, std::string> choose_row(const Collective& collective, const std::vector<std::int32_t>& nodes,
                                                std::int32_t progress_cores, const std::string& network) {
  const Choice choice = choose(team(0, nodes, progress_cores, network), collective);
  return {std::string(choice.algorithm->name), choice.reason};
}

std::vector<Plan> plan_all(Collective collective, const std::vector<std::int32_t>& nodes, std::int32_t progress_cores,
                           const std::string& network = "") {
  // Chosen once, not by each rank.
  if (!network.empty()) {
    const Choice choice = choose(team(0, nodes, progress_cores, network), collective);
    collective.algorithm = choice.algorithm->name;
    collective.segment_bytes = choice.segment_bytes;
    collective.radix = choice.radix;
  }
  std::vector<Plan> plans;
  for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(nodes.size()); ++rank)
    plans.push_back(plan_collective(team(rank, nodes, progress_cores), collective));
  return plans;
}

bool can_run(const Algorithm& row, const Team& team, const Collective& collective) {
  if (row.kind != collective.kind) return false;
  try {
    (void)choose(team, collective);
    return true;
  } catch (const Error&) {  // the row does not fit, or cannot combine like this
    return false;
  }
}

/// Name, seconds and their terms by name; the fastest first.
using Ranked = std::tuple<std::string, double, std::map<std::string, double>>;

std::map<std::string, double> terms_of(const Cost& cost) {
  std::map<std::string, double> terms;
  for (std::size_t i = 0; i < kCostTerms; ++i) {
    const auto term = static_cast<CostTerm>(i);
    terms.emplace(name(term), cost.of(term));
  }
  return terms;
}

std::vector<Ranked> rank_rows(Collective collective, const std::vector<std::int32_t>& nodes, const std::string& network,
                              bool by_cost) {
  const Machine machine = machine_with(network);
  (void)choose(team(0, nodes, 0), collective);  // refuses wrong arguments, which no row fits
  const Team known = team(0, nodes, 0, network);
  std::vector<Ranked> ranked;
  for (const Algorithm& row : algorithms()) {
    collective.algorithm = row.name;
    if (!can_run(row, team(0, nodes, 0), collective)) continue;
    Collective call = collective;
    call.radix = choose(known, collective).radix;
    const std::optional<Cost> cost = by_cost ? row.seconds_by_term(team(0, nodes, 0), call, machine)
                                             : simulated_cost(plan_all(call, nodes, 0), team(0, nodes, 0), machine);
    if (cost) ranked.emplace_back(row.name, cost->seconds, terms_of(*cost));
  }
  std::ranges::stable_sort(ranked, {}, [](const Ranked& each) { return std::get<1>(each); });
  return ranked;
}

std::vector<std::pair<std::string, std::string>> network_names() {
  std::vector<std::pair<std::string, std::string>> names;
  for (const NetworkClass& each : network_classes()) names.emplace_back(each.name, each.description);
  return names;
}

}  // namespace

NB_MAKE_OPAQUE(std::vector<Plan>)

void bind_plan(nb::module_& module) {
  nb::module_ part = module.def_submodule("plan");
  nb::class_<Collective>(part, "Collective")
      .def("__init__",
           [](Collective* self, const std::string& kind, std::uint64_t count, const std::string& dtype,
              const std::string& op, int root, bool in_place, const std::string& algorithm, std::uint64_t segment_bytes,
              int split, int radix, bool reproducible, const std::vector<std::int32_t>& grid, bool periodic) {
             new (self) Collective(collective(kind, count, dtype, op, root, in_place, algorithm, segment_bytes, split,
                                              radix, reproducible, grid, periodic));
           })
      .def_prop_ro("itemsize", [](const Collective& self) { return size_bytes(self.dtype); });
  // The plans of all ranks. Opaque, since they may be large.
  nb::class_<std::vector<Plan>>(part, "Plans")
      .def("__len__", [](const std::vector<Plan>& self) { return self.size(); })
      .def("to_text", [](const std::vector<Plan>& self, std::size_t rank) { return to_text(self.at(rank)); })
      .def("to_json", [](const std::vector<Plan>& self, std::size_t rank) { return to_json(self.at(rank)); })
      .def("to_dot", [](const std::vector<Plan>& self) { return to_dot(self); })
      .def("verify", [](const std::vector<Plan>& self, const std::vector<std::int32_t>& nodes,
                        std::uint64_t element_bytes) { return verify(self, nodes, element_bytes); });
  part.def("algorithms", &algorithm_rows);
  part.def("choose", &choose_row);
  part.def("networks", &network_names);
  part.def("rank", &rank_rows, nb::call_guard<nb::gil_scoped_release>());
  part.def("plan_all", &plan_all, nb::call_guard<nb::gil_scoped_release>());
}
