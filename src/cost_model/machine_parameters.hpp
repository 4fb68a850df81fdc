// The parameters of a Machine by their names, for what writes, reads or tells all of them. `cores` is the only other
// one.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "penstock/cost_model.hpp"

namespace penstock::cost_model {

template <class Value>
struct MachineParameter {
  std::string_view part;  ///< "network" or "node"
  std::string_view name;
  Value* (*of)(Machine& machine);
};

#define PENSTOCK_PARAMETER(Value, part, name)                          \
  MachineParameter<Value> {                                            \
#part, #name, [](Machine & machine) { return &machine.part.name; } \
  }
/// Times, and factors of times.
inline constexpr std::array kMachineTimes = {
    PENSTOCK_PARAMETER(double, network, latency_seconds),
    PENSTOCK_PARAMETER(double, network, overhead_seconds),
    PENSTOCK_PARAMETER(double, network, gap_seconds),
    PENSTOCK_PARAMETER(double, network, seconds_per_byte),
    PENSTOCK_PARAMETER(double, network, process_seconds_per_byte),
    PENSTOCK_PARAMETER(double, node, flag_seconds),
    PENSTOCK_PARAMETER(double, node, copy_seconds_per_byte),
    PENSTOCK_PARAMETER(double, node, far_copy_seconds_per_byte),
    PENSTOCK_PARAMETER(double, node, remote_read_seconds),
    PENSTOCK_PARAMETER(double, node, remote_read_seconds_per_byte),
    PENSTOCK_PARAMETER(double, node, combine_seconds_per_byte),
    PENSTOCK_PARAMETER(double, node, task_seconds),
    PENSTOCK_PARAMETER(double, node, uncached_factor),
    PENSTOCK_PARAMETER(double, node, ranks_per_core),
};
inline constexpr std::array kMachineCounts = {
    PENSTOCK_PARAMETER(std::uint64_t, network, eager_bytes),
    PENSTOCK_PARAMETER(std::uint64_t, node, message_bytes),
    PENSTOCK_PARAMETER(std::uint64_t, node, cache_bytes),
};
#undef PENSTOCK_PARAMETER

}  // namespace penstock::cost_model
