// The `remote_read` step: blocks from the memory of another process straight to where they belong.
#pragma once

#include <sys/types.h>

#include "penstock/plan.hpp"

namespace penstock::engine {

struct RemoteMemory {
  pid_t process;  ///< may be this one
  std::uint64_t address;
};

/// Does the step of the plan. Returns 0 or what read_memory() does; then parts of `to` have been written.
int remote_read(const Plan& plan, const Step& step, const Arithmetic& arithmetic, RemoteMemory offered, Bytes to);

}  // namespace penstock::engine
