// Reading and writing another process's memory directly, where the kernel allows it.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "penstock/types.hpp"

namespace penstock::engine {

/// Fills `to` from `address` of the process (may be this one). Returns 0 or errno: EPERM and ENOSYS where containers
/// or Yama forbid it, EFAULT and ESRCH when the memory or the process is gone.
int read_memory(pid_t process, std::uint64_t address, Bytes to) noexcept;
/// The same in the other direction.
int write_memory(pid_t process, std::uint64_t address, ConstBytes from) noexcept;

}  // namespace penstock::engine
