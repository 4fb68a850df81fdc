// The costs of the rows of algorithms.def: functions of the team, the arguments and the machine that agree with the
// simulation of the plans of all ranks (simulated_seconds) within 10%, in a small part of its time. A row names its
// function; `unpriced` rows have none.
#pragma once

#include <optional>
#include <string_view>

#include "penstock/collective.hpp"
#include "penstock/cost_model.hpp"

namespace penstock::collectives::cost {

struct Call {
  std::string_view row;
  const Team& team;
  const Collective& collective;
  const Machine& machine;
};

/// Time: double, the seconds alone, or Cost. None if the function does not cover the team.
template <class Time>
std::optional<Time> unpriced(const Call&) {
  return std::nullopt;
}

/// The rows of levels.def, for several nodes.
template <class Time>
std::optional<Time> levels(const Call& call);
/// Trees over all ranks: on teams with one rank per node.
template <class Time>
std::optional<Time> flat_tree(const Call& call);

/// Rows in which all nodes do the same. Takes the planning and simulation of the ranks of one node, of at most four
/// if there are no more. For nodes of equal size.
template <class Time>
std::optional<Time> alike_nodes(const Call& call);
/// The same, for a power of two of nodes.
template <class Time>
std::optional<Time> alike_powers_of_two(const Call& call);
/// The same, if the first node (of the root) collects the result along a binomial tree: those that send to it, too.
template <class Time>
std::optional<Time> alike_to_first(const Call& call);
/// The same, if some leave their data to a neighbour because the number of nodes is no power of two.
template <class Time>
std::optional<Time> alike_pairs(const Call& call);

}  // namespace penstock::collectives::cost
