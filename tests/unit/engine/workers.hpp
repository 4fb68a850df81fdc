// The progress threads of this process, as the kernel reports them.
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/cpu_set.hpp"
#include "eventually.hpp"

namespace penstock::engine {

struct WorkerThread {
  pid_t id = 0;
  long switches = 0;    ///< voluntary and involuntary
  bool asleep = false;  ///< neither running nor waiting for a core
  std::string blocked_signals{};

  bool operator==(const WorkerThread&) const = default;
};

inline std::vector<WorkerThread> workers() {
  std::vector<WorkerThread> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir("/proc/self/task"), ::closedir);
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string folder = std::string("/proc/self/task/") + entry->d_name;
    std::ifstream comm(folder + "/comm");
    std::string name;
    std::getline(comm, name);
    if (name != kWorkerName) continue;
    WorkerThread worker{.id = std::stoi(entry->d_name)};
    std::ifstream status(folder + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.find("voluntary_ctxt_switches:") != std::string::npos)
        worker.switches += std::stol(line.substr(line.find(':') + 1));
      if (line.starts_with("State:")) worker.asleep = line.find('S', 6) != std::string::npos;
      if (line.starts_with("SigBlk:")) worker.blocked_signals = line.substr(8);
    }
    found.push_back(worker);
  }
  std::ranges::sort(found, {}, &WorkerThread::id);
  return found;
}

/// Waits until there are `expected` workers: a joined thread may stay in /proc for a moment.
inline std::size_t count_of_workers(std::size_t expected) {
  test::eventually([expected] { return workers().size() == expected; });
  return workers().size();
}

/// Whether the workers stop running. None of them may run during an interval that is longer than any sleep with an
/// operation in flight. A worker that polls has run by then, or is awake and waits for a core.
inline bool come_to_rest() {
  static constexpr std::chrono::milliseconds kLongerThanTheySleep{300};
  return test::eventually([] {
    const std::vector<WorkerThread> before = workers();
    std::this_thread::sleep_for(kLongerThanTheySleep);
    const std::vector<WorkerThread> after = workers();
    return before == after && std::ranges::all_of(after, &WorkerThread::asleep);
  });
}

/// Calls fork() at any moment of the workers. AddressSanitizer's allocator (GCC 12) needs idle workers: if another
/// thread allocates during fork(), the child's next allocation waits for that thread.
inline pid_t fork_beside_workers() {
#ifdef __SANITIZE_ADDRESS__
  EXPECT_TRUE(come_to_rest());
#endif
  return ::fork();
}

}  // namespace penstock::engine
