// The threads of this process, as the kernel reports them.
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "eventually.hpp"

namespace penstock::test {

struct Thread {
  pid_t id = 0;
  long switches = 0;    ///< voluntary and involuntary
  bool asleep = false;  ///< neither running nor waiting for a core
  std::string blocked_signals{};

  bool operator==(const Thread&) const = default;
};

/// All threads but the calling one, or those of them with this name, by their ids.
inline std::vector<Thread> other_threads(std::string_view with_name = {}) {
  std::vector<Thread> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir("/proc/self/task"), ::closedir);
  while (const dirent* entry = ::readdir(directory.get())) {
    if (entry->d_name[0] == '.' || std::stoi(entry->d_name) == ::gettid()) continue;
    const std::string folder = std::string("/proc/self/task/") + entry->d_name;
    std::ifstream comm(folder + "/comm");
    std::string name;
    std::getline(comm, name);
    if (!with_name.empty() && name != with_name) continue;
    Thread thread{.id = std::stoi(entry->d_name)};
    std::ifstream status(folder + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.find("voluntary_ctxt_switches:") != std::string::npos)
        thread.switches += std::stol(line.substr(line.find(':') + 1));
      if (line.starts_with("State:")) thread.asleep = line.find('S', 6) != std::string::npos;
      if (line.starts_with("SigBlk:")) thread.blocked_signals = line.substr(8);
    }
    found.push_back(thread);
  }
  std::ranges::sort(found, {}, &Thread::id);
  return found;
}

/// Whether those threads stop running. None of them may run during an interval that is longer than any sleep of a
/// progress thread with an operation in flight. A thread that polls has run by then, or is awake and waits for a core.
inline bool come_to_rest(std::string_view with_name = {}) {
  static constexpr std::chrono::milliseconds kLongerThanTheySleep{300};
  return eventually([with_name] {
    const std::vector<Thread> before = other_threads(with_name);
    std::this_thread::sleep_for(kLongerThanTheySleep);
    const std::vector<Thread> after = other_threads(with_name);
    return before == after && std::ranges::all_of(after, &Thread::asleep);
  });
}

/// Calls fork() at any moment of the other threads. The allocators of AddressSanitizer and ThreadSanitizer (GCC 12)
/// need those that allocate, which have this name, at rest: if one of them allocates during fork(), the child's next
/// allocation waits for a thread that it does not have. (ThreadSanitizer's own thread never rests.)
inline pid_t fork_beside_threads([[maybe_unused]] std::string_view with_name) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  EXPECT_TRUE(come_to_rest(with_name));
#endif
  return ::fork();
}

}  // namespace penstock::test
