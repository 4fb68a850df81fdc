// Holds a transfer to a rate.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace penstock::checkpoint {

/// How time passes; tests replace it.
struct Clock {
  std::function<double()> now_s;  ///< monotonic
  std::function<void(double)> sleep_s;

  static Clock system();
};

/// One thread at a time calls take(). In any time t after the first call it admits at most rate * t bytes, and those of
/// one call.
class RateLimit {
 public:
  /// `bytes_per_s` 0: no limit.
  explicit RateLimit(double bytes_per_s, Clock clock = Clock::system())
      : bytes_per_s_(bytes_per_s), clock_(std::move(clock)) {}

  /// Waits until so many bytes may be transferred.
  void take(std::uint64_t bytes);

  double bytes_per_s() const { return bytes_per_s_; }
  /// How long take() has waited in all. Any thread may ask.
  double waited_s() const { return waited_s_; }

 private:
  const double bytes_per_s_;
  const Clock clock_;
  double free_at_s_ = 0;  ///< when the bytes that were admitted have taken their time
  std::atomic<double> waited_s_{0};
};

}  // namespace penstock::checkpoint
