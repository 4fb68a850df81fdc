// The simulated time of an operation in which all nodes do the same at the same time, from the plans of one node.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "penstock/cost_model.hpp"

namespace penstock::cost_model {

/// As simulated_seconds() (Time: double) or simulated_cost() (Time: Cost) of the plans of all ranks, given those of all
/// ranks of some nodes. What they send to other nodes they receive themselves: a rank at place i of a node that
/// sends to a rank at place j of another node stands for one that the rank at place j of the same node receives from.
/// A receive that is left takes what one of the same place and tag receives, at the same time. None if sends and
/// receives do not pair up like this, and the nodes are not alike; or if it takes more than `most_seconds`.
template <class Time>
std::optional<Time> time_of_alike_nodes(std::span<const Plan> plans, const Team& team, const Machine& machine,
                                        double most_seconds = std::numeric_limits<double>::infinity());

/// What a plan takes at least: what it keeps the injection of its process for.
double least_seconds_of(const Plan& plan, const Team& team, const Machine& machine);

/// How many steps this thread has simulated so far, one by one: what costs and choices take.
std::uint64_t simulated_steps() noexcept;
/// Adds those of costs that are simulated without plans.
void add_simulated_steps(std::uint64_t steps) noexcept;

}  // namespace penstock::cost_model
