// A loop on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace penstock::store {

/// Cores that this process may use.
unsigned usable_cores();

/// Calls body(i, thread) for every i below `count`, once each, on at most `threads` threads, this one being thread 0.
/// After a failure the rest may be left out; throws what the first failed call threw. All loops of a process share a
/// bounded number of threads.
void in_parallel(std::size_t count, std::size_t threads, const std::function<void(std::size_t, std::size_t)>& body);

}  // namespace penstock::store
