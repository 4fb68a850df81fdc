// How much memory a rank may still take.
#pragma once

#include <cstdint>
#include <string>

namespace penstock::checkpoint {

/// Bytes that processes may still take on this machine without swapping, and without passing the limit of a control
/// group that this process is in. What the page cache holds only for speed counts as free. UINT64_MAX if unknown.
std::uint64_t free_memory_bytes();

/// The same, from the content of /proc/meminfo and /proc/self/cgroup, and the folder in which cgroups are mounted.
std::uint64_t free_memory_bytes(const std::string& meminfo, const std::string& groups, const std::string& mount);

}  // namespace penstock::checkpoint
