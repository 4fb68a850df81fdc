// The progress threads of this process, as the kernel shows them.
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

namespace penstock::engine {

struct Worker {
  pid_t id = 0;
  long switches = 0;  ///< voluntary and not
  std::string blocked_signals{};
};

inline std::vector<Worker> workers() {
  std::vector<Worker> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir("/proc/self/task"), ::closedir);
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string folder = std::string("/proc/self/task/") + entry->d_name;
    std::ifstream comm(folder + "/comm");
    std::string name;
    std::getline(comm, name);
    if (name != kWorkerName) continue;
    Worker worker{.id = std::stoi(entry->d_name)};
    std::ifstream status(folder + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.find("voluntary_ctxt_switches:") != std::string::npos)
        worker.switches += std::stol(line.substr(line.find(':') + 1));
      if (line.starts_with("SigBlk:")) worker.blocked_signals = line.substr(8);
    }
    found.push_back(worker);
  }
  std::ranges::sort(found, {}, &Worker::id);
  return found;
}

/// A thread that has been joined may stay in /proc for a moment: waits until there are `expected`, not for long.
inline std::size_t count_of_workers(std::size_t expected) {
  for (int i = 0; i < 1000 && workers().size() != expected; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return workers().size();
}

/// How often the one that woke most did so within 300 ms, once their last sleeps with something in flight are over.
inline long wakeups() {
  constexpr std::chrono::milliseconds kLongerThanTheySleep{300};
  std::this_thread::sleep_for(kLongerThanTheySleep);
  const std::vector<Worker> before = workers();
  std::this_thread::sleep_for(kLongerThanTheySleep);
  const std::vector<Worker> after = workers();
  EXPECT_EQ(after.size(), before.size());
  long most = 0;
  for (std::size_t i = 0; i < std::min(before.size(), after.size()); ++i) {
    EXPECT_EQ(after[i].id, before[i].id);
    most = std::max(most, after[i].switches - before[i].switches);
  }
  return most;
}

/// fork() whatever the workers are doing, except where the allocator is AddressSanitizer's (of GCC 12): a child that is
/// made while another thread allocates waits for that thread in its own next allocation.
inline pid_t fork_beside_workers() {
#ifdef __SANITIZE_ADDRESS__
  EXPECT_LE(wakeups(), 1);
#endif
  return ::fork();
}

}  // namespace penstock::engine
