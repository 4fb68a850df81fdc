// The `borrow` step: blocks from the memory of another process straight to where they belong.
#pragma once

#include <sys/types.h>

#include "penstock/plan.hpp"

namespace penstock::engine {

struct Lent {
  pid_t process;  ///< may be this one
  std::uint64_t address;
};

/// Does the step of the plan. Returns 0 or what read_memory() does; then parts of `to` have been written.
int borrow(const Plan& plan, const Step& step, const Arithmetic& arithmetic, Lent lent, Bytes to);

}  // namespace penstock::engine
