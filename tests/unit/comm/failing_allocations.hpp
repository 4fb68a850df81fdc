// Allocations of a thread that fail.
#pragma once

#include <cstdint>

namespace penstock::test {

/// The number of this thread's allocations before one fails. If negative, none fails.
extern thread_local constinit std::int64_t allocations_left;
/// Allocated and not yet freed, by this thread.
extern thread_local constinit std::int64_t allocated_bytes;

}  // namespace penstock::test
