#include "penstock/trace.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>
#include <set>

#include "base/json.hpp"

namespace penstock::trace {
namespace {

/// Each thread appends to its own buffer, so that the lock is never contended while recording.
struct ThreadBuffer {
  std::mutex mutex;
  std::vector<Event> events;
  std::uint64_t thread = static_cast<std::uint64_t>(::syscall(SYS_gettid));
};

struct Registry {
  std::mutex mutex;
  std::vector<std::shared_ptr<ThreadBuffer>> buffers;
  std::set<std::string, std::less<>> names;
};

// Leaked on purpose: threads may record while the process exits.
Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

ThreadBuffer& thread_buffer() {
  thread_local const std::shared_ptr<ThreadBuffer> buffer = [] {
    auto made = std::make_shared<ThreadBuffer>();
    const std::lock_guard lock(registry().mutex);
    registry().buffers.push_back(made);
    return made;
  }();
  return *buffer;
}

}  // namespace

namespace detail {

std::atomic<bool> enabled{false};

std::uint64_t now_ns() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(time.tv_nsec);
}

void record(const Event& event) noexcept try {
  ThreadBuffer& buffer = thread_buffer();
  const std::lock_guard lock(buffer.mutex);
  buffer.events.push_back(event);
  buffer.events.back().thread = buffer.thread;
  buffer.events.back().core = ::sched_getcpu();
} catch (...) {
  // Out of memory: the event is lost.
}

}  // namespace detail

void start() { detail::enabled.store(true, std::memory_order_relaxed); }
void stop() { detail::enabled.store(false, std::memory_order_relaxed); }

const char* intern(std::string_view text) {
  const std::lock_guard lock(registry().mutex);
  auto found = registry().names.find(text);
  if (found == registry().names.end()) found = registry().names.emplace(text).first;
  return found->c_str();
}

std::vector<Event> take() {
  std::vector<Event> all;
  const std::lock_guard lock(registry().mutex);
  for (const auto& buffer : registry().buffers) {
    const std::lock_guard buffer_lock(buffer->mutex);
    all.insert(all.end(), buffer->events.begin(), buffer->events.end());
    buffer->events.clear();
  }
  std::erase_if(registry().buffers, [](const auto& buffer) { return buffer.use_count() == 1; });
  std::sort(all.begin(), all.end(), [](const Event& a, const Event& b) { return a.begin_ns < b.begin_ns; });
  return all;
}

std::string to_json(const std::vector<Event>& events, int process) {
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  char numbers[224];
  for (std::size_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    out += (i ? ",\n{\"ph\":\"X\",\"name\":" : "\n{\"ph\":\"X\",\"name\":") + json::quoted(event.name) +
           ",\"cat\":" + json::quoted(event.lane);
    std::snprintf(numbers, sizeof numbers,
                  ",\"pid\":%d,\"tid\":%llu,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"bytes\":%llu,\"core\":%d}}", process,
                  static_cast<unsigned long long>(event.thread), static_cast<double>(event.begin_ns) / 1e3,
                  static_cast<double>(event.end_ns - event.begin_ns) / 1e3,
                  static_cast<unsigned long long>(event.bytes), event.core);
    out += numbers;
  }
  return out + "\n]}\n";
}

void write_at_exit(const std::string& prefix) {
  static const auto* const path = new std::string(prefix + "." + std::to_string(::getpid()) + ".json");
  start();
  std::atexit([] {
    stop();
    std::FILE* file = std::fopen(path->c_str(), "w");
    const std::string json = to_json(take(), static_cast<int>(::getpid()));
    if (file == nullptr || std::fwrite(json.data(), 1, json.size(), file) != json.size())
      std::fprintf(stderr, "penstock: cannot write the trace %s: %s; give another path in PENSTOCK_TRACE\n",
                   path->c_str(), std::strerror(errno));
    if (file != nullptr) std::fclose(file);
  });
}

}  // namespace penstock::trace
