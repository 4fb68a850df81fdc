// The long messages in flight: how many may be posted, and how long they need.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "engine/remote/send_window.hpp"
#include "engine/remote/transfer_time.hpp"

namespace penstock::engine {

/// Those that take so long that the link, not the processor, decides: SendWindow::counts(). The engine's lock protects
/// it.
class LongMessages {
 public:
  struct Posted {
    std::uint64_t at_ns = 0;  ///< 0: the message is not long
    std::uint64_t bytes = 0;

    bool is_long() const { return at_ns != 0; }
  };

  static Posted about_to_post(std::uint64_t bytes) {
    return SendWindow::counts(bytes) ? Posted{now_ns(), bytes} : Posted{};
  }
  bool has_room(int peer, std::uint64_t bytes) const {
    if (!SendWindow::counts(bytes)) return true;
    const auto found = sends_.find(peer);
    return found == sends_.end() || found->second < window_.messages();
  }
  /// A message is about to be posted: what follows needs no memory.
  void expect(int peer) { sends_.try_emplace(peer); }
  void posted(int peer, std::uint64_t bytes, bool is_send) {
    ++in_flight_;
    time_.posted(now_ns(), bytes);
    if (is_send) ++sends_[peer];
  }
  /// `bytes`: as the transport reports them.
  void done(int peer, const Posted& posted, std::uint64_t bytes, bool is_send) {
    --in_flight_;
    time_.done(now_ns(), posted.at_ns, posted.bytes);
    window_.done(posted.at_ns, bytes);
    if (is_send) --sends_[peer];
  }

  /// Around each poll of the transport. `is_any_waiting`: for has_room(), or for the next poll.
  void before_poll(bool is_any_waiting) {
    polled_ns_ = in_flight_ > 0 || is_any_waiting ? now_ns() : 0;
    window_.poll(polled_ns_, in_flight_ > 0);
  }
  void after_poll() {
    if (in_flight_ > 0) window_.polled(now_ns() - polled_ns_);
  }
  /// After what followed the poll.
  void after_round(bool has_moved, bool is_any_waiting) {
    if (has_moved || !is_any_waiting)
      window_.moved(is_any_waiting);
    else
      window_.stuck(polled_ns_);
  }

  /// How long they need no poll, see SendWindow; 0: none is in flight.
  std::int64_t nap_ns() const { return in_flight_ > 0 ? static_cast<std::int64_t>(window_.nap_ns()) : 0; }
  /// The same for a thread that nobody waits for. Each poll takes time from threads that compute, so there are few:
  /// what is in flight is found late by a sixteenth of its time at most.
  std::int64_t background_nap_ns() const {
    if (in_flight_ == 0) return 0;
    return static_cast<std::int64_t>(window_.background_nap_ns()) * naps_at_once(time_.bytes_in_flight());
  }
  static std::int64_t naps_at_once(std::uint64_t in_flight_bytes) {
    const std::uint64_t naps = in_flight_bytes / kPollsInBackground / SendWindow::unpolled_bytes();
    return static_cast<std::int64_t>(std::clamp<std::uint64_t>(naps, 1, kMostNaps));
  }
  /// Until then they should be on their way, see TransferTime; 0: none is in flight.
  std::int64_t transfer_until_ns() const { return static_cast<std::int64_t>(time_.until_ns()); }

 private:
  static std::uint64_t now_ns() {
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                      std::chrono::nanoseconds(1));
  }

  static constexpr std::uint64_t kPollsInBackground = 16;  ///< while what is in flight moves
  /// A transport may buffer no more; TCP's windows grow beyond that where the link needs it.
  static constexpr std::uint64_t kMostNaps = 8;

  SendWindow window_;
  TransferTime time_;
  std::size_t in_flight_ = 0;
  std::unordered_map<int, std::uint32_t> sends_;  ///< in flight, by receiver
  std::uint64_t polled_ns_ = 0;
};

}  // namespace penstock::engine
