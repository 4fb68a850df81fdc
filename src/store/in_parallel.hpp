// A parallel loop.
#pragma once

#include <cstddef>
#include <functional>

namespace penstock::store {

/// The number of cores that this process may use.
unsigned usable_cores();

/// Calls body(i, thread) once for every i below `count`, on at most `threads` threads. The caller is thread 0. Returns
/// when all calls are done. If a call throws, remaining calls may be skipped; throws the first exception. All loops of
/// a process share a bounded number of threads.
void in_parallel(std::size_t count, std::size_t threads, const std::function<void(std::size_t, std::size_t)>& body);

}  // namespace penstock::store
