#include "host/yielding.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

namespace penstock::host {
namespace {

/// How long this thread has waited for a core while it could run.
std::int64_t run_delay_ns() noexcept {
  // If it cannot be known, others may have had all of the core.
  const auto all_ns = [] { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); };
  std::array<char, 96> text{};
  const int file = ::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return all_ns();
  const ssize_t bytes = ::read(file, text.data(), text.size() - 1);
  ::close(file);
  long long ran_ns = 0;
  long long delay_ns = 0;
  return bytes > 0 && std::sscanf(text.data(), "%lld %lld", &ran_ns, &delay_ns) == 2 ? delay_ns : all_ns();
}

}  // namespace

std::int64_t coarse_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

std::chrono::nanoseconds timer_slack() noexcept {
  return std::chrono::nanoseconds(std::max(::prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), 0));
}

Yields& yields_of_this_thread() noexcept {
  thread_local Yields yields;
  return yields;
}

void yield(Yields& yields) noexcept {
  const std::int64_t before = coarse_ns();
  ::sched_yield();
  yields.returned(before, coarse_ns(), [] {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    return Turns{usage.ru_nivcsw, run_delay_ns()};
  });
}

}  // namespace penstock::host
