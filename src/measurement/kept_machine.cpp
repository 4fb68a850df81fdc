#include "measurement/kept_machine.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <utility>

#include "base/json.hpp"
#include "cost_model/machine_parameters.hpp"
#include "measurement/kept_files.hpp"
#include "penstock/error.hpp"

namespace penstock::measurement {
namespace {

using cost_model::kMachineCounts;
using cost_model::kMachineTimes;

constexpr std::uint64_t kFileVersion = 3;  // 1: other meaning of the gap; 2: without ranks_per_core
constexpr double kUnit = 1e-18;            // of times in files, which have integers

std::string to_text(const std::string& key, Machine machine) {
  json::Object object;
  object.string("format", "penstock-machine").number("version", kFileVersion).string("key", key);
  for (const auto& each : kMachineTimes)
    object.number(each.name, static_cast<std::uint64_t>(std::llround(*each.of(machine) / kUnit)));
  for (const auto& each : kMachineCounts) object.number(each.name, *each.of(machine));
  object.number("cores", machine.node.cores);
  return object.finish() + "\n";
}

std::optional<Machine> from_text(const std::string& key, const std::string& text) {
  try {
    const json::Value value = json::Value::parse(text);
    if (value.at("format").text() != "penstock-machine" || value.at("version").number() != kFileVersion ||
        value.at("key").text() != key)
      return std::nullopt;
    Machine machine;
    for (const auto& each : kMachineTimes)
      *each.of(machine) = static_cast<double>(value.at(each.name).number()) * kUnit;
    for (const auto& each : kMachineCounts) *each.of(machine) = value.at(each.name).number();
    machine.node.cores = static_cast<int>(std::clamp<std::uint64_t>(value.at("cores").number(), 1, 1 << 16));
    return machine;
  } catch (const Error&) {
    return std::nullopt;  // measured again
  }
}

Remembered<std::string, KeptMachine>& remembered() {
  static Remembered<std::string, KeptMachine> all;
  return all;
}

std::optional<KeptMachine> find(const MachineKey& key) {
  const std::string text = key.text();
  if (auto machine = remembered().find(text)) return machine;
  const std::filesystem::path path = kept_path("machine", text);
  if (path.empty()) return std::nullopt;
  const auto machine = from_text(text, kept_text(path));
  if (!machine) return std::nullopt;
  KeptMachine kept{*machine, "read from " + path.string()};
  remembered().add(text, kept);
  return kept;
}

}  // namespace

std::string MachineKey::text() const {
  return host + "," +
         (pairs_class == 0 ? "one node" : "fewer than " + std::to_string(1 << pairs_class) + " pairs between nodes") +
         "," + (has_node ? "ranks" : "one rank") + " per node";
}

MachineKey key_of(const Team& team, const std::string& mpi, const Parties& parties) {
  return {.host = host_facts() + "," + mpi + ",single copy " + (team.single_copy ? "on" : "off"),
          .pairs_class = static_cast<int>(std::bit_width(parties.between.size())),
          .has_node = parties.beside >= 0};
}

std::optional<KeptMachine> kept_machine(const MachineKey& key) {
  if (auto known = find(key)) return known;
  constexpr int kMostClass = 12;
  for (MachineKey wider = key; wider.pairs_class <= kMostClass; ++wider.pairs_class) {
    wider.has_node = true;
    if (auto known = find(wider); known && !known->machine.shares_cores()) return known;
  }
  return std::nullopt;
}

Machine as_kept(const MachineKey& key, const Machine& machine) {
  return from_text(key.text(), to_text(key.text(), machine)).value_or(machine);
}

void keep(const MachineKey& key, const Machine& machine) {
  const std::string text = key.text();
  remembered().add(text, {machine, "measured before by this process"});
  keep_text(kept_path("machine", text), to_text(text, machine));
}

}  // namespace penstock::measurement
