// Reads and writes another process's memory (process_vm_readv and process_vm_writev), if the kernel allows it.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "penstock/types.hpp"

namespace penstock::host {

/// Fills `to` from `address` in `process`, which may be this one. Returns 0 or an errno: EPERM or ENOSYS if a container
/// or Yama forbids it, EFAULT or ESRCH if the memory or the process is gone.
int read_memory(pid_t process, std::uint64_t address, Bytes to) noexcept;
/// The same in the other direction.
int write_memory(pid_t process, std::uint64_t address, ConstBytes from) noexcept;

/// What keeps this process from accessing the memory of another one.
struct AccessObstacle {
  const char* what = nullptr;  ///< nullptr: nothing
  int error = 0;               ///< errno, or 0
};
/// `probe_value` lies at `probe_address` of that process. Remembers which processes were reached: the system calls take
/// longer than to make the rest of a communicator. A later process with that number has another value.
AccessObstacle obstacle_to_access(pid_t process, std::uint64_t probe_address, std::uint64_t probe_value) noexcept;

}  // namespace penstock::host
