#include "checkpoint/free_memory.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/control_groups.hpp"

namespace penstock::checkpoint {

namespace {

/// The number behind `name` at the beginning of a line.
std::optional<std::uint64_t> number_after(const std::string& text, std::string_view name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    std::istringstream rest(line.substr(name.size()));
    std::uint64_t number = 0;
    if (rest >> number) return number;
  }
  return std::nullopt;
}

/// How a version of cgroups calls its files.
struct GroupFiles {
  const char* limit;
  const char* usage;
  const char* inactive;
};

/// Nothing if the group does not exist or has no limit.
std::optional<std::uint64_t> room_bytes(const std::string& group, const GroupFiles& files) {
  std::istringstream limit_text(content_of_file(group + files.limit));  // "max" if there is no limit
  std::istringstream usage_text(content_of_file(group + files.usage));
  std::uint64_t limit = 0;
  std::uint64_t usage = 0;
  if (!(limit_text >> limit) || !(usage_text >> usage)) return std::nullopt;
  const std::uint64_t inactive = number_after(content_of_file(group + "/memory.stat"), files.inactive).value_or(0);
  usage -= std::min(usage, inactive);
  return limit - std::min(limit, usage);
}

}  // namespace

std::uint64_t free_memory_bytes(const std::string& meminfo, const std::string& groups, const std::string& mount) {
  constexpr std::uint64_t kBytesPerKb = 1024;
  constexpr GroupFiles kUnified{"/memory.max", "/memory.current", "inactive_file "};
  constexpr GroupFiles kLegacy{"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file "};
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  if (const auto kb = number_after(meminfo, "MemAvailable:")) least = *kb * kBytesPerKb;
  for (const ControlGroup& group : control_groups(groups, mount, "memory"))
    if (const auto room = room_bytes(group.folder, group.unified ? kUnified : kLegacy)) least = std::min(least, *room);
  return least;
}

std::uint64_t free_memory_bytes() {
  return free_memory_bytes(content_of_file("/proc/meminfo"), content_of_file("/proc/self/cgroup"), "/sys/fs/cgroup");
}

}  // namespace penstock::checkpoint
