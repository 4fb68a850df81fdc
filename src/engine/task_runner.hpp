// Does one shared task: moves and combines the memory of several processes, block by block through this core's cache.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>

#include "penstock/plan.hpp"

namespace penstock::engine {

/// Memory of a rank of this node.
struct Place {
  pid_t process = 0;  ///< 0: mapped here, at `address`
  std::uint64_t address = 0;
  std::int32_t rank = 0;
};

/// Where moving failed: of which rank, and the errno of process_vm_readv or process_vm_writev. error == 0: all is done.
struct TaskResult {
  int error = 0;
  std::int32_t rank = -1;
};

/// Every target = source 0 (op) (source 1 (op) (...)) of `size_bytes`. A target may be one of the sources.
/// Allocates once per thread. Throws what kernels::reduce throws.
TaskResult run_task(const Arithmetic& arithmetic, std::span<const Place> sources, std::span<const Place> targets,
                    std::uint64_t size_bytes);

}  // namespace penstock::engine
