// The control groups that a process is in, of both versions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct ControlGroup {
  std::string folder;
  bool unified;  ///< version 2
};

/// Where a group that `controller` ("cpu", "memory") limits may have its files. A group is held to the limits of those
/// above it, too, so these are here as well. A folder need not exist: a container may see only the upper end of a path.
/// `groups`: the content of /proc/self/cgroup; `mount`: the folder in which they are mounted.
std::vector<ControlGroup> control_groups(const std::string& groups, const std::string& mount,
                                         std::string_view controller);

/// Empty if there is no such file, or if it cannot be read any more. Does not throw for that.
std::string content_of_file(const std::string& path);

}  // namespace penstock
