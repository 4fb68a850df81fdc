#include "penstock/cost_model.hpp"

#include <array>
#include <cstdio>
#include <string>

#include "base/json.hpp"
#include "cost_model/machine_parameters.hpp"
#include "penstock/error.hpp"

namespace penstock {
namespace {

constexpr double kMicrosecond = 1e-6;

constexpr double seconds_per_byte(double gigabits) { return 8e-9 / gigabits; }

constexpr std::array kNetworks = {
#define PENSTOCK_NETWORK(name, description, latency, overhead, gap, node_gigabits, process_gigabits, eager) \
  NetworkClass{name,                                                                                        \
               description,                                                                                 \
               {.latency_seconds = (latency)*kMicrosecond,                                                  \
                .overhead_seconds = (overhead)*kMicrosecond,                                                \
                .gap_seconds = (gap)*kMicrosecond,                                                          \
                .seconds_per_byte = seconds_per_byte(node_gigabits),                                        \
                .process_seconds_per_byte = seconds_per_byte(process_gigabits),                             \
                .eager_bytes = (eager) << 10}},
#include "cost_model/networks.def"
#undef PENSTOCK_NETWORK
};

/// With all digits: std::to_string has six.
std::string digits(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.9g", value);
  return text.data();
}

}  // namespace

std::string to_json(const Machine& machine) {
  json::Object network;
  json::Object node;
  const auto part = [&](std::string_view name) -> json::Object& { return name == "network" ? network : node; };
  Machine given = machine;
  for (const auto& each : cost_model::kMachineTimes) part(each.part).raw(each.name, digits(*each.of(given)));
  for (const auto& each : cost_model::kMachineCounts) part(each.part).number(each.name, *each.of(given));
  node.number("cores", machine.node.cores);
  return json::Object().raw("network", network.finish()).raw("node", node.finish()).finish();
}

std::span<const NetworkClass> network_classes() noexcept { return kNetworks; }

std::string_view name(CostTerm term) noexcept {
  constexpr std::array<std::string_view, kCostTerms> kNames = {"latency", "overhead", "link",
                                                               "copy",    "combine",  "synchronization"};
  return kNames[static_cast<std::size_t>(term)];
}

Machine machine_with(std::string_view network) {
  std::string known;
  for (const NetworkClass& each : kNetworks) {
    if (each.name == network) return {.network = each.network};
    known += (known.empty() ? "" : ", ") + std::string(each.name);
  }
  throw Error(ErrorCode::invalid_argument,
              "unknown class of networks '" + std::string(network) + "'; expected one of " + known);
}

}  // namespace penstock
