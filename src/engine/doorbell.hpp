// Sleeping until another thread or process has something to say.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>

namespace penstock::engine {

/// Lives in shared memory, or in a process for its own threads. A sleeper raises `sleepers`, reads `word`, looks once
/// more for work, and then sleeps while `word` keeps its value. A waker makes its work visible by a sequentially
/// consistent operation and then calls ring(): either the waker sees the sleeper or the sleeper sees the work.
struct Doorbell {
  std::atomic<std::uint32_t> word{0};
  std::atomic<std::uint32_t> sleepers{0};

  void ring() noexcept {
    if (sleepers.load(std::memory_order_seq_cst) != 0) ring_always();
  }
  void ring_always() noexcept;
};

/// A doorbell and the value that its word had before the last look for work.
struct Listening {
  Doorbell* bell;
  std::uint32_t value;
};

/// Sleeps until one of the words differs from its value, or the time is over; may return early. Where the kernel
/// cannot wait for several words, waits for the first only, and then not longer than 200 microseconds.
void sleep_on(std::span<const Listening> bells, std::chrono::nanoseconds timeout) noexcept;

inline constexpr std::size_t kMaxListening = 128;  ///< longer lists are cut, and the sleep kept short

}  // namespace penstock::engine
