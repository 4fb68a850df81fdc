// Yields of the core, and what a thread has found out by them.
#pragma once

#include <chrono>
#include <cstdint>

#include "host/yields.hpp"

namespace penstock::host {

/// Changes with the kernel's tick, at which it takes the core from a thread that has had its turn. Ten times faster
/// than a precise clock.
std::int64_t coarse_ns() noexcept;

/// How much later than asked the kernel may end a sleep of this thread.
std::chrono::nanoseconds timer_slack() noexcept;

Yields& yields_of_this_thread() noexcept;

/// Lets another thread have the core. `yields`: of this thread.
void yield(Yields& yields) noexcept;

}  // namespace penstock::host
