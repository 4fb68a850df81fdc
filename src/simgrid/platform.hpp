// A SimGrid platform as Penstock sees it: its nodes, and their costs.
#pragma once

#include <string>
#include <vector>

#include <simgrid/s4u.hpp>

#include "penstock/cost_model.hpp"
#include "penstock/plan.hpp"

namespace penstock::simulated {

/// The hosts of the loaded platform in natural order ("node2" before "node10"), at most `nodes` of them; 0: all.
/// Throws Error(invalid_argument) if there are fewer.
std::vector<simgrid::s4u::Host*> hosts_of(const simgrid::s4u::Engine& engine, int nodes);

/// What choices by cost know of the platform. From the routes of the first host to the others: the mean latency, and
/// the bandwidth of the narrowest link. From the host: its cores. The rest are the properties of the outermost zone,
/// such as <prop id="network.overhead_seconds" value="0.3e-6"/> with the names of the members of Machine; those that
/// are missing keep their defaults, process_seconds_per_byte is that of a link. Throws Error(invalid_argument) for a
/// property of this form that Machine lacks, or that routes give.
Machine machine_of(const simgrid::s4u::Engine& engine, const std::vector<simgrid::s4u::Host*>& hosts);

/// `ranks_per_node` ranks on the first host, then as many on the next one.
Team team_of(const std::vector<simgrid::s4u::Host*>& hosts, int ranks_per_node);

}  // namespace penstock::simulated
