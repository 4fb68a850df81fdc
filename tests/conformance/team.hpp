// Placements of ranks on nodes, and properties of the plans of all ranks.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "penstock/collective.hpp"

namespace penstock {

/// The name of a row in GoogleTest and CTest.
void PrintTo(const Algorithm* row, std::ostream* out);

namespace conformance {

/// The rows of algorithms.def with a wanted kind, as values of a parameterized test; and the name of a test instance.
std::vector<const Algorithm*> rows(bool (*wanted)(CollectiveKind));
std::string row_name(const testing::TestParamInfo<const Algorithm*>& instance);

/// All ranks on one node; contiguous ranks on nodes of unequal size; the same nodes with the ranks shuffled; each rank
/// alone on its node.
enum class Placement { one_node, unequal, shuffled, alone };

std::vector<std::int32_t> place(Placement placement, int size);

/// Up to three domains in each node, unordered, if the number of ranks is odd; none if it is even.
std::vector<std::int32_t> domains_in(const std::vector<std::int32_t>& nodes);

/// The hardest placement that the algorithm of `collective` supports.
/// Whether a row can serve the collective, with the graph of its ranks for a neighbourhood.
bool fits(const Algorithm& row, const Collective& collective, const Team& team);
Placement fitting_placement(const Collective& collective, int size);

std::vector<Plan> plan_all(const Collective& collective, const std::vector<std::int32_t>& nodes,
                           int progress_cores = 0);

/// Whether no rank can leave before all ranks have arrived: on every rank, some step depends on a step of each other
/// rank.
bool synchronizes(std::span<const Plan> plans);

}  // namespace conformance
}  // namespace penstock
