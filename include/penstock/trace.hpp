// Traces: spans of time per thread and lane, written in Chrome's trace format, which ui.perfetto.dev reads.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/export.hpp"

namespace penstock::trace {

/// A finished span. Times are CLOCK_MONOTONIC, so traces of the processes of one machine can be merged.
struct Event {
  const char* name;  ///< of the work: "reduce"; lives as long as the process, see intern()
  const char* lane;  ///< row of the drawing: "progress"; likewise
  std::uint64_t begin_ns;
  std::uint64_t end_ns;
  std::uint64_t bytes;  ///< 0 if the work has no size
  std::uint64_t thread;
  std::int32_t core = -1;  ///< on which the span ended
};

namespace detail {
PENSTOCK_API extern std::atomic<bool> enabled;
PENSTOCK_API std::uint64_t now_ns() noexcept;
PENSTOCK_API void record(const Event& event) noexcept;
}  // namespace detail

inline bool enabled() noexcept { return detail::enabled.load(std::memory_order_relaxed); }

/// Starts recording; the buffers grow as needed. Thread-safe, like everything here.
PENSTOCK_API void start();
PENSTOCK_API void stop();

/// A pointer that lives as long as the process, for names made at run time.
PENSTOCK_API const char* intern(std::string_view text);

/// Removes and returns all events so far, ordered by their begin.
PENSTOCK_API std::vector<Event> take();

/// The events as a Chrome trace: {"traceEvents": [...]}. `process` becomes the pid; usually the rank.
PENSTOCK_API std::string to_json(const std::vector<Event>& events, int process);

/// Starts recording, and writes the events of this process to `<prefix>.<pid>.json` at exit. The option `trace` calls
/// it.
PENSTOCK_API void write_at_exit(const std::string& prefix);

/// Records its own lifetime as an event. `name` and `lane` must live as long as the process. Costs one relaxed load if
/// tracing is off.
class Span {
 public:
  Span(const char* name, const char* lane, std::uint64_t bytes = 0) noexcept {
    if (enabled()) event_ = {name, lane, detail::now_ns(), 0, bytes, 0};
  }
  ~Span() {
    if (event_.name == nullptr) return;
    event_.end_ns = detail::now_ns();
    detail::record(event_);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  Event event_{};
};

}  // namespace penstock::trace
