// A transform whose source lies in the memory of another process, without a copy in between.
#pragma once

#include <sys/types.h>

#include "penstock/plan.hpp"

namespace penstock::engine {

/// Memory that a peer offers.
struct RemoteMemory {
  pid_t process;  ///< may be this process
  std::uint64_t address;
};

/// Runs the step. Returns 0, or the error of read_memory(); then parts of `to` have been written.
int remote_read(const Plan& plan, const Step& step, const Arithmetic& arithmetic, RemoteMemory offered, Bytes to);

}  // namespace penstock::engine
