#include "measurement/kept_files.hpp"

#include <glob.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <new>
#include <set>
#include <span>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/hash.hpp"
#include "host/topology.hpp"
#include "penstock/options.hpp"

namespace penstock::measurement {
namespace {

/// The speeds of the host's network interfaces, so that hosts of one name on other networks have their own file.
std::string network_speeds() {
  std::set<std::string> speeds;
  // A std::filesystem::directory_iterator that lacks memory ends the process.
  for (const char* const pattern : {"/sys/class/net/*/speed", "/sys/class/infiniband/*/ports/*/rate"}) {
    glob_t found{};
    const std::unique_ptr<glob_t, decltype(&::globfree)> freed(&found, ::globfree);
    if (::glob(pattern, GLOB_NOSORT, nullptr, &found) == GLOB_NOSPACE) throw std::bad_alloc();
    for (const char* const path : std::span(found.gl_pathv, found.gl_pathc)) {
      const std::string text = kept_text(path);
      const std::string speed = text.substr(0, text.find('\n'));
      if (!speed.empty() && speed != "-1") speeds.insert(speed);
    }
  }
  std::string all;
  for (const std::string& speed : speeds) all += (all.empty() ? "" : " and ") + speed;
  return all;
}

std::string facts_of_host() {
  std::string processor;
  std::istringstream lines(kept_text("/proc/cpuinfo"));
  for (std::string line; processor.empty() && std::getline(lines, line);)
    if (line.starts_with("model name") || line.starts_with("CPU part")) processor = line.substr(line.find(':') + 1);
  std::array<char, 256> name{};
  static_cast<void>(::gethostname(name.data(), name.size() - 1));
  std::string host(name.data());
  host.resize(host.find_last_not_of("0123456789") + 1);
  return host + "," + processor + "," + std::to_string(host::topology().cpus.size()) + " CPUs,network " +
         network_speeds();
}

/// Of the option `machine_folder`; empty: nothing is kept.
std::filesystem::path kept_folder() {
  const std::string& wanted = options().machine_folder;
  if (wanted == "none") return {};
  if (!wanted.empty()) return wanted;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != 0) return std::filesystem::path(cache) / "penstock";
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home != 0) return std::filesystem::path(home) / ".cache" / "penstock";
  return {};
}

}  // namespace

std::filesystem::path kept_path(std::string_view kind, const std::string& key) {
  const std::filesystem::path in = kept_folder();
  if (in.empty()) return {};
  std::array<char, 17> name{};
  std::snprintf(name.data(), name.size(), "%016llx", static_cast<unsigned long long>(base::mix(base::kSeed, key)));
  return in / (std::string(kind) + "-" + std::string(name.data()) + ".json");
}

std::string kept_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

void keep_text(const std::filesystem::path& path, const std::string& text) {
  if (path.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  const std::filesystem::path draft = path.string() + "." + std::to_string(::getpid());
  std::ofstream file(draft);
  const bool is_written = static_cast<bool>(file << text << std::flush);
  file.close();
  if (is_written) std::filesystem::rename(draft, path, ignored);
  if (!is_written || ignored) std::filesystem::remove(draft, ignored);
}

const std::string& host_facts() {
  static const std::string facts = facts_of_host();
  return facts;
}

}  // namespace penstock::measurement
