// What communication costs on the nodes of a communicator: measured, agreed on by its ranks, and kept for later jobs.
#pragma once

#include <cstdint>

#include "comm/facts.hpp"
#include "engine/engine.hpp"
#include "penstock/comm.hpp"

namespace penstock::comm {

/// See Comm::machine. Collective, before or between other operations of the engine.
MeasuredMachine measured_machine(engine::Engine& engine, const Facts& facts, bool again);

/// Of messages, from the seconds that one of `bytes` and one of twice as many take. On a busy host the longer one can
/// seem the faster one: never less than half of what its bytes took on average.
double seconds_per_byte(double once, double twice, std::uint64_t bytes);

}  // namespace penstock::comm
