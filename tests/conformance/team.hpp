// Placements of ranks on nodes, and what can be said about the plans of all ranks together.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "penstock/collective.hpp"

namespace penstock {

/// How GoogleTest and CTest name a row.
void PrintTo(const Algorithm* row, std::ostream* out);

namespace conformance {

/// The rows of algorithms.def whose kind is wanted, as values of a parameterized test, and the name of an instance.
std::vector<const Algorithm*> rows(bool (*wanted)(CollectiveKind));
std::string row_name(const testing::TestParamInfo<const Algorithm*>& instance);

/// All ranks on one node; blocks of unequal nodes; the same nodes with the ranks in disorder.
enum class Placement { one_node, unequal, shuffled };

std::vector<std::int32_t> place(Placement placement, int size);

/// Up to three domains in each node, in disorder, where the number of ranks is odd; none where it is even.
std::vector<std::int32_t> domains_in(const std::vector<std::int32_t>& nodes);

/// The hardest placement that the algorithm of `collective` can serve.
Placement fitting_placement(const Collective& collective, int size);

std::vector<Plan> plan_all(const Collective& collective, const std::vector<std::int32_t>& nodes,
                           int progress_cores = 0);

/// Whether no rank can leave before every other rank has come: each rank's steps lead to steps of all others.
bool synchronizes(std::span<const Plan> plans);

}  // namespace conformance
}  // namespace penstock
