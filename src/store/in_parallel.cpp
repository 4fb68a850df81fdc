#include "store/in_parallel.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace penstock::store {

namespace {

/// The limit for all loops of this process together.
constexpr int kMostHelpers = 32;
std::atomic<int> helpers_at_work{0};

}  // namespace

unsigned usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return std::max(1U, std::thread::hardware_concurrency());
  return static_cast<unsigned>(std::max(1, CPU_COUNT(&set)));
}

void in_parallel(std::size_t count, std::size_t threads, const std::function<void(std::size_t, std::size_t)>& body) {
  if (threads <= 1 || count <= 1) {
    for (std::size_t i = 0; i < count; ++i) body(i, 0);
    return;
  }
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&](std::size_t thread) {
    try {
      for (std::size_t i; (i = next.fetch_add(1)) < count;) body(i, thread);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::thread> helpers;
  helpers.reserve(std::min(threads, count));  // no started thread is lost if memory runs out
  for (std::size_t i = 1; i < std::min(threads, count); ++i) {
    if (helpers_at_work.fetch_add(1) >= kMostHelpers) {
      helpers_at_work.fetch_sub(1);
      break;
    }
    try {
      helpers.emplace_back([&work, i] {
        work(i);
        helpers_at_work.fetch_sub(1);
      });
    } catch (const std::system_error&) {
      helpers_at_work.fetch_sub(1);
      break;  // the system gives no more threads: those that run do the rest
    }
  }
  work(0);
  for (std::thread& helper : helpers) helper.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace penstock::store
