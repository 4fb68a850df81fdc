// What communication costs on the nodes of a communicator: measured, agreed on by its ranks, and kept for later jobs.
#pragma once

#include "comm/facts.hpp"
#include "engine/engine.hpp"
#include "penstock/comm.hpp"

namespace penstock::comm {

/// See Comm::machine. Collective, before or between other operations of the engine.
MeasuredMachine measured_machine(engine::Engine& engine, const Facts& facts, bool again);

}  // namespace penstock::comm
