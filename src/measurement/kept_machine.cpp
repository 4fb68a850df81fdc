#include "measurement/kept_machine.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <system_error>

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
  const auto add = [&](const std::filesystem::path& path) {
    const std::string text = text_of(path.string());
    const std::string speed = text.substr(0, text.find('\n'));
    if (!speed.empty() && speed != "-1") speeds.insert(speed);
  };
  std::error_code ignored;
  for (const auto& each : std::filesystem::directory_iterator("/sys/class/net", ignored)) add(each.path() / "speed");
  for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband", ignored))
    for (const auto& port : std::filesystem::directory_iterator(device.path() / "ports", ignored))
      add(port.path() / "rate");
  std::string all;
  for (const std::string& speed : speeds) all += (all.empty() ? "" : " and ") + speed;
  return all;
}

constexpr std::uint64_t kFileVersion = 2;  // 1: other meaning of the gap
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

std::filesystem::path file_of(const std::string& key) {
  std::filesystem::path folder = options().machine_folder;
  if (folder == "none") return {};
  if (folder.empty()) {
    const char* cache = std::getenv("XDG_CACHE_HOME");
    const char* home = std::getenv("HOME");
    if (cache != nullptr && *cache != 0)
      folder = std::filesystem::path(cache) / "penstock";
    else if (home != nullptr && *home != 0)
      folder = std::filesystem::path(home) / ".cache" / "penstock";
    else
      return {};
  }
  std::array<char, 17> name{};
  std::snprintf(name.data(), name.size(), "%016llx", static_cast<unsigned long long>(base::mix(base::kSeed, key)));
  return folder / ("machine-" + std::string(name.data()) + ".json");
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

/// What this process has measured, for communicators made later: where no file can be kept.
class Remembered {
 public:
  void add(const std::string& key, const Machine& machine) {
    const std::lock_guard lock(mutex_);
    machines_[key] = machine;
  }
  std::optional<Machine> find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto known = machines_.find(key);
    return known == machines_.end() ? std::nullopt : std::optional(known->second);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Machine> machines_;
};

Remembered& remembered() {
  static Remembered all;
  return all;
}

}  // namespace

std::string key_of(const Team& team, const std::string& mpi, const Parties& parties) {
  std::string processor;
  std::istringstream lines(text_of("/proc/cpuinfo"));
  for (std::string line; processor.empty() && std::getline(lines, line);)
    if (line.starts_with("model name") || line.starts_with("CPU part")) processor = line.substr(line.find(':') + 1);
  std::array<char, 256> name{};
  static_cast<void>(::gethostname(name.data(), name.size() - 1));
  std::string host(name.data());
  host.resize(host.find_last_not_of("0123456789") + 1);
  return host + "," + processor + "," + std::to_string(host::topology().cpus.size()) + " CPUs," + mpi + ",network " +
         network_speeds() + "," + std::to_string(parties.between.size()) + " pairs between nodes," +
         (parties.beside < 0 ? "one rank" : "ranks") + " per node,single copy " + (team.single_copy ? "on" : "off");
}

std::optional<KeptMachine> kept_machine(const std::string& key) {
  if (const std::filesystem::path path = file_of(key); !path.empty())
    if (const auto machine = from_text(key, text_of(path.string())))
      return KeptMachine{*machine, "read from " + path.string()};
  if (const auto machine = remembered().find(key)) return KeptMachine{*machine, "measured before by this process"};
  return std::nullopt;
}

Machine as_kept(const std::string& key, const Machine& machine) {
  return from_text(key, to_text(key, machine)).value_or(machine);
}

void keep(const std::string& key, const Machine& machine) {
  remembered().add(key, machine);
  if (const std::filesystem::path path = file_of(key); !path.empty()) write(path, to_text(key, machine));
}

}  // namespace penstock::measurement
