// The times of rows on one node: which of them are worth measuring, and what lies between the lengths that were
// measured.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "penstock/choice_by_cost.hpp"
#include "penstock/collective.hpp"
#include "penstock/plan.hpp"

namespace penstock::collectives {

/// Operations whose rows are measured on a node.
bool has_times(CollectiveKind kind);

/// What is to be measured on this team's node, by operation and length, the shortest lengths first: the rows that fit,
/// but for those that are others' doubles on one node. Equal on all ranks.
std::vector<RowTime> rows_to_measure(const Team& team);

/// The call by which they are measured.
Collective measured_call(CollectiveKind kind, std::uint64_t bytes);

/// Seconds of a row between two of its lengths, by logarithms; up to twice the longest, in proportion. None if one of
/// the two was not measured. `times` has the lengths of a row in their order.
std::optional<double> interpolated(std::span<const RowTime> times, const Algorithm& row, std::uint64_t bytes);

}  // namespace penstock::collectives
