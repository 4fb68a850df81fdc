// How long the rows of collectives take on a node: measured, agreed on by its ranks, and kept for later jobs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "measurement/operations.hpp"
#include "penstock/choice_by_cost.hpp"
#include "penstock/plan.hpp"

namespace penstock::measurement {

/// What the ranks of a node know about its rows. Empty: they share cores, or nothing could be measured.
struct NodeRows {
  std::uint64_t id = 0;  ///< equal if the times are; never 0
  std::vector<RowTime> times;
};

/// What this process knows, for communicators of so many ranks on one node; nullptr if nothing. Any thread.
std::shared_ptr<const NodeRows> known_node_rows(int ranks);
/// Keeps these times for jobs with as many ranks on a node; each row has its place in collectives::rows_to_measure().
/// `mpi`: the library and its version.
void keep_node_rows(const Team& team, const std::string& mpi, const std::vector<RowTime>& times);
/// The kept times, or what is measured now, on all ranks the same; known_node_rows() then gives them, unless ranks
/// share cores. Collective, before or between other operations of the engine.
std::shared_ptr<const NodeRows> node_rows(engine::Engine& engine, const Team& team, const std::string& mpi,
                                          Purpose purpose);

}  // namespace penstock::measurement
