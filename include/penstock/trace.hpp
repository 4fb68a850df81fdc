// What every thread did when: spans on lanes, written as a Chrome trace (ui.perfetto.dev reads it).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/export.hpp"

namespace penstock::trace {

/// A finished span. Times are CLOCK_MONOTONIC, so traces of the processes of one machine fit together.
struct Event {
  const char* name;  ///< what was done, "reduce"
  const char* lane;  ///< where it belongs in a drawing, "progress"
  std::uint64_t begin_ns;
  std::uint64_t end_ns;
  std::uint64_t bytes;  ///< 0 where bytes mean nothing
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

/// All events so far, in the order of their begin, and forgets them.
PENSTOCK_API std::vector<Event> take();

/// The events as a Chrome trace: {"traceEvents": [...]}; `process` becomes the pid, so give the rank.
PENSTOCK_API std::string to_json(const std::vector<Event>& events, int process);

/// Starts recording, and writes the events of this process to `<prefix>.<pid>.json` when it exits. The option `trace`
/// calls it.
PENSTOCK_API void write_at_exit(const std::string& prefix);

/// Records the time of its life. Costs one relaxed load when tracing is off.
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
