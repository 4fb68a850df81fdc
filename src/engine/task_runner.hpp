// Runs one task: moves and combines the memory of several processes, block by block through this core's cache.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>

#include "penstock/plan.hpp"

namespace penstock::engine {

/// The address of a rank's memory.
struct Place {
  pid_t process = 0;  ///< 0: mapped here, at `address`
  std::uint64_t address = 0;
  std::int32_t rank = 0;
};

/// error: 0, or the errno of process_vm_readv or process_vm_writev for the memory of `rank`.
struct TaskResult {
  int error = 0;
  std::int32_t rank = -1;
};

/// Every target = source 0 (op) (source 1 (op) (...)), `size_bytes` each. A target may be equal to a source. Allocates
/// once per thread. Throws what kernels::reduce throws.
TaskResult run_task(const Arithmetic& arithmetic, std::span<const Place> sources, std::span<const Place> targets,
                    std::uint64_t size_bytes);

}  // namespace penstock::engine
