// How long the long messages in flight should be on their way.
#pragma once

#include <cstdint>

#include "penstock/cost_model.hpp"

namespace penstock::engine {

/// Measures how long messages take, from posting to completion. The time of a byte is a quantile of the messages of
/// late: a step up after a slower message, a third of that down after a faster one, so three of four are faster. A rank
/// that was late for a message changes it little. If threads that sleep make messages slow, the time grows, so that
/// they are awake for longer and messages become fast again. Not thread-safe.
class TransferTime {
 public:
  void posted(std::uint64_t now_ns, std::uint64_t bytes) {
    bytes_ += bytes;
    moved_ns_ = now_ns;
  }
  void done(std::uint64_t now_ns, std::uint64_t posted_ns, std::uint64_t bytes) {
    const double took = static_cast<double>(now_ns - posted_ns) / static_cast<double>(bytes);
    if (!is_measured_)
      ns_per_byte_ = took;
    else
      ns_per_byte_ *= took > ns_per_byte_ ? 1 + kStep : 1 - kStep / 3;
    is_measured_ = true;
    bytes_ -= bytes;
    moved_ns_ = now_ns;
  }
  std::uint64_t bytes_in_flight() const { return bytes_; }
  /// When all that is in flight should have come, twice as slow as it should. 0 if nothing is.
  std::uint64_t until_ns() const {
    return bytes_ == 0 ? 0 : moved_ns_ + static_cast<std::uint64_t>(2 * ns_per_byte_ * static_cast<double>(bytes_));
  }

 private:
  static constexpr double kStep = 0.25;

  std::uint64_t bytes_ = 0;     ///< in flight
  std::uint64_t moved_ns_ = 0;  ///< when a message was posted or completed last
  double ns_per_byte_ = Machine::Network{}.seconds_per_byte * 1e9;
  bool is_measured_ = false;
};

}  // namespace penstock::engine
