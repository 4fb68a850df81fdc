// The progress threads of this process, as the kernel reports them.
#pragma once

#include <cstddef>
#include <vector>

#include "host/cpu_set.hpp"
#include "threads.hpp"

namespace penstock::engine {

inline std::vector<test::Thread> workers() { return test::other_threads(host::kWorkerName); }

/// Waits until there are `expected` workers: a joined thread may stay in /proc for a moment.
inline std::size_t count_of_workers(std::size_t expected) {
  test::eventually([expected] { return workers().size() == expected; });
  return workers().size();
}

}  // namespace penstock::engine
