// What communication costs on the nodes of a communicator: measured, agreed on by its ranks, and kept for later jobs.
#pragma once

#include <optional>
#include <string>

#include "engine/engine.hpp"
#include "penstock/cost_model.hpp"
#include "penstock/plan.hpp"

namespace penstock::measurement {

/// See MeasuredMachine.
struct Measurement {
  Machine machine;
  std::string source;
  double seconds = 0;
};

/// See Comm::machine. `mpi`: the library and its version. Collective, before or between other operations of the engine.
Measurement measured_machine(engine::Engine& engine, const Team& team, const std::string& mpi, bool again);
/// The kept machine, or what is measured now, by which algorithms are chosen. Empty if ranks share cores: costs have a
/// core for each, and other ranks' messages would take it from them. Then nothing else is measured, and nothing is
/// kept. Collective, as above.
std::optional<Machine> machine_for_choices(engine::Engine& engine, const Team& team, const std::string& mpi);

}  // namespace penstock::measurement
