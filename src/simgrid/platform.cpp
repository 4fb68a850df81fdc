#include "simgrid/platform.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string_view>

#include "cost_model/machine_parameters.hpp"
#include "penstock/error.hpp"

namespace penstock::simulated {
namespace {

namespace s4u = simgrid::s4u;

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::invalid_argument, why); }

/// SimGrid lists hosts by hash or by character: node10 before node2.
bool is_before(std::string_view a, std::string_view b) {
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  while (!a.empty() && !b.empty()) {
    if (is_digit(a[0]) && is_digit(b[0])) {
      std::uint64_t left = 0;
      std::uint64_t right = 0;
      a.remove_prefix(static_cast<std::size_t>(std::from_chars(a.data(), a.data() + a.size(), left).ptr - a.data()));
      b.remove_prefix(static_cast<std::size_t>(std::from_chars(b.data(), b.data() + b.size(), right).ptr - b.data()));
      if (left != right) return left < right;
    } else if (a[0] != b[0]) {
      return a[0] < b[0];
    } else {
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  return a.size() < b.size();
}

template <class Value>
Value number(const std::string& name, const std::string& text) {
  Value value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < Value{})
    refuse("the platform's property " + name + " is '" + text + "'; expected a number, 0 or more");
  return value;
}

/// False if `parameters` have no such name.
template <class Parameters>
bool set(const Parameters& parameters, Machine& machine, const std::string& name, const std::string& text) {
  for (const auto& parameter : parameters) {
    if (name != std::string(parameter.part) + "." + std::string(parameter.name)) continue;
    auto& value = *parameter.of(machine);
    value = number<std::remove_reference_t<decltype(value)>>(name, text);
    return true;
  }
  return false;
}

}  // namespace

std::vector<s4u::Host*> hosts_of(const s4u::Engine& engine, int nodes) {
  std::vector<s4u::Host*> hosts = engine.get_all_hosts();
  if (hosts.empty()) refuse("the platform has no host");
  if (nodes < 0 || static_cast<std::size_t>(nodes) > hosts.size())
    refuse("nodes is " + std::to_string(nodes) + "; the platform has " + std::to_string(hosts.size()) + " hosts");
  std::ranges::sort(hosts,
                    [](const s4u::Host* a, const s4u::Host* b) { return is_before(a->get_name(), b->get_name()); });
  if (nodes > 0) hosts.resize(static_cast<std::size_t>(nodes));
  return hosts;
}

Machine machine_of(const s4u::Engine& engine, const std::vector<s4u::Host*>& hosts) {
  Machine machine;
  machine.node.cores = hosts[0]->get_core_count();
  if (hosts.size() > 1) {
    double latencies = 0;
    double narrowest = std::numeric_limits<double>::infinity();
    for (std::size_t other = 1; other < hosts.size(); ++other) {
      std::vector<s4u::Link*> links;
      double latency = 0;
      hosts[0]->route_to(hosts[other], links, &latency);
      latencies += latency;
      for (const s4u::Link* link : links) narrowest = std::min(narrowest, link->get_bandwidth());
    }
    machine.network.latency_seconds = latencies / static_cast<double>(hosts.size() - 1);
    machine.network.seconds_per_byte = 1 / narrowest;
    machine.network.process_seconds_per_byte = machine.network.seconds_per_byte;
  }
  // Of the zone inside the root that the engine itself makes, if there is one.
  const s4u::NetZone* outermost = engine.get_netzone_root();
  if (outermost->get_properties()->empty() && outermost->get_children().size() == 1)
    outermost = outermost->get_children()[0];
  for (const auto& [name, text] : *outermost->get_properties()) {
    if (!name.starts_with("network.") && !name.starts_with("node.")) continue;
    if (name == "network.latency_seconds" || name == "network.seconds_per_byte")
      refuse("the platform has the property " + name + ", which its links already give");
    if (!set(cost_model::kMachineTimes, machine, name, text) && !set(cost_model::kMachineCounts, machine, name, text))
      refuse("the platform has the property " + name + ", which is none of a machine; cores are those of its hosts");
  }
  return machine;
}

Team team_of(const std::vector<s4u::Host*>& hosts, int ranks_per_node) {
  Team team;
  for (std::size_t node = 0; node < hosts.size(); ++node)
    team.node_of_rank.insert(team.node_of_rank.end(), static_cast<std::size_t>(ranks_per_node),
                             static_cast<std::int32_t>(node));
  return team;
}

}  // namespace penstock::simulated
