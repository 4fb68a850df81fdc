// Runs the plans of all ranks with time, on the hosts and links of a SimGrid platform.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <simgrid/s4u.hpp>

#include "penstock/cost_model.hpp"
#include "penstock/plan.hpp"

namespace penstock::simulated {

/// What SimGrid must be told before a platform is loaded: the bytes of a message have an equal share of each link with
/// the other messages there, without TCP's windows and acknowledgements.
void set_network_model();

/// What messages are charged.
enum class Charges : std::uint8_t {
  machine,   ///< what `machine` says
  as_peers,  ///< what SMPI charges its algorithms, see docs/design/simulation.md
};
/// The machine as choices by cost are to see it: as peers, without gaps and handshakes, and with the loopback of
/// `host`.
Machine as_charged(Machine machine, const simgrid::s4u::Host& host, Charges charges);

/// The time from a common start to the end of the last step. A message between nodes takes overhead of both cores, the
/// time that the links of its route need for its bytes and Machine::Network::gap_seconds, and the latency of the route;
/// a long one also a handshake, see Machine::Network. A process hands its messages over one after the other. Inside a
/// node steps cost what `machine` says. Each core is an actor that does its work in the order in which it becomes
/// ready. `on_end`, if given, is called with rank and step as each step ends. `hosts[n]` is the host of node n of the
/// team. May be called again. Throws Error(internal) if the plans deadlock, or a message has no partner; the text names
/// ranks and steps.
double run(const simgrid::s4u::Engine& engine, const std::vector<simgrid::s4u::Host*>& hosts,
           std::span<const Plan> plans, const Team& team, const Machine& machine,
           const std::function<void(std::int32_t rank, StepId step)>& on_end = {}, Charges charges = Charges::machine);

}  // namespace penstock::simulated
