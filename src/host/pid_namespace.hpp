// Numbers of processes, which depend on the PID namespace.
#pragma once

#include <sys/types.h>

#include "penstock/export.hpp"

namespace penstock::host {

/// This process's number in /proc, which may be that of an outer PID namespace; 0 if it is not there.
pid_t number_in_proc() noexcept;

/// Whether processes have the same numbers in /proc as in system calls.
PENSTOCK_API bool proc_has_own_numbers() noexcept;

}  // namespace penstock::host
