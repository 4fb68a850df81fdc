#include "measurement/kept_machine.hpp"

#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <span>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/hash.hpp"
#include "base/json.hpp"
#include "cost_model/machine_parameters.hpp"
#include "host/topology.hpp"
#include "penstock/error.hpp"
#include "penstock/options.hpp"

namespace penstock::measurement {
namespace {

using cost_model::kMachineCounts;
using cost_model::kMachineTimes;

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

/// The speeds of the host's network interfaces, so that hosts of one name on other networks have their own file.
std::string network_speeds() {
  std::set<std::string> speeds;
  // A std::filesystem::directory_iterator that lacks memory ends the process.
  for (const char* const pattern : {"/sys/class/net/*/speed", "/sys/class/infiniband/*/ports/*/rate"}) {
    glob_t found{};
    const std::unique_ptr<glob_t, decltype(&::globfree)> freed(&found, ::globfree);
    if (::glob(pattern, GLOB_NOSORT, nullptr, &found) == GLOB_NOSPACE) throw std::bad_alloc();
    for (const char* const path : std::span(found.gl_pathv, found.gl_pathc)) {
      const std::string text = text_of(path);
      const std::string speed = text.substr(0, text.find('\n'));
      if (!speed.empty() && speed != "-1") speeds.insert(speed);
    }
  }
  std::string all;
  for (const std::string& speed : speeds) all += (all.empty() ? "" : " and ") + speed;
  return all;
}

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

/// Empty: none.
std::filesystem::path folder() {
  const std::string& wanted = options().machine_folder;
  if (wanted == "none") return {};
  if (!wanted.empty()) return wanted;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != 0) return std::filesystem::path(cache) / "penstock";
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home != 0) return std::filesystem::path(home) / ".cache" / "penstock";
  return {};
}

std::filesystem::path file_of(const std::string& key) {
  const std::filesystem::path in = folder();
  if (in.empty()) return {};
  std::array<char, 17> name{};
  std::snprintf(name.data(), name.size(), "%016llx", static_cast<unsigned long long>(base::mix(base::kSeed, key)));
  return in / ("machine-" + std::string(name.data()) + ".json");
}

/// Complete or not at all: other jobs may read it now.
void write(const std::filesystem::path& path, const std::string& text) {
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  const std::filesystem::path draft = path.string() + "." + std::to_string(::getpid());
  std::ofstream file(draft);
  const bool is_written = static_cast<bool>(file << text << std::flush);
  file.close();
  if (is_written) std::filesystem::rename(draft, path, ignored);
  if (!is_written || ignored) std::filesystem::remove(draft, ignored);
}

/// What this process has measured or read, for communicators made later, by folder and key.
class Remembered {
 public:
  void add(const std::string& key, KeptMachine machine) {
    const std::lock_guard lock(mutex_);
    machines_[{folder(), key}] = std::move(machine);
  }
  std::optional<KeptMachine> find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto known = machines_.find({folder(), key});
    return known == machines_.end() ? std::nullopt : std::optional(known->second);
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<std::filesystem::path, std::string>, KeptMachine> machines_;
};

Remembered& remembered() {
  static Remembered all;
  return all;
}

/// Of the host, which does not change while the process runs.
std::string host_facts() {
  std::string processor;
  std::istringstream lines(text_of("/proc/cpuinfo"));
  for (std::string line; processor.empty() && std::getline(lines, line);)
    if (line.starts_with("model name") || line.starts_with("CPU part")) processor = line.substr(line.find(':') + 1);
  std::array<char, 256> name{};
  static_cast<void>(::gethostname(name.data(), name.size() - 1));
  std::string host(name.data());
  host.resize(host.find_last_not_of("0123456789") + 1);
  return host + "," + processor + "," + std::to_string(host::topology().cpus.size()) + " CPUs,network " +
         network_speeds();
}

std::optional<KeptMachine> find(const MachineKey& key) {
  const std::string text = key.text();
  if (auto machine = remembered().find(text)) return machine;
  const std::filesystem::path path = file_of(text);
  if (path.empty()) return std::nullopt;
  const auto machine = from_text(text, text_of(path.string()));
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
  static const std::string host = host_facts();
  return {.host = host + "," + mpi + ",single copy " + (team.single_copy ? "on" : "off"),
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
  if (const std::filesystem::path path = file_of(text); !path.empty()) write(path, to_text(text, machine));
}

}  // namespace penstock::measurement
