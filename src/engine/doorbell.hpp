// Doorbells: threads sleep until another thread or process rings.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>

namespace penstock::engine {

/// A futex in shared memory, or in one process for its own threads. A sleeper raises `sleepers`, reads `word`, checks
/// for work once more, and sleeps while `word` keeps its value. A waker publishes its work by a sequentially consistent
/// operation and then calls ring(). So either the waker sees the sleeper or the sleeper sees the work.
struct Doorbell {
  std::atomic<std::uint32_t> word{0};
  std::atomic<std::uint32_t> sleepers{0};

  void ring() noexcept {
    if (sleepers.load(std::memory_order_seq_cst) != 0) ring_always();
  }
  void ring_always() noexcept;
};

/// A doorbell, and the value of its word before the last check for work.
struct Listening {
  Doorbell* bell;
  std::uint32_t value;
};

/// Sleeps until one of the words differs from its value or the time is over. May return early. If the kernel cannot
/// wait for several words, it waits for the first one only, at most 200 microseconds.
void sleep_on(std::span<const Listening> bells, std::chrono::nanoseconds timeout) noexcept;

inline constexpr std::size_t kMaxListening = 128;  ///< with more bells, the rest is ignored and the sleep is short

}  // namespace penstock::engine
