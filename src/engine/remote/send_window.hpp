// How many long messages to a peer may be on their way at once.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "engine/waiting.hpp"
#include "penstock/cost_model.hpp"

namespace penstock::engine {

/// Some MPIs send all long messages that they have in turns, so that none arrives before all do. A pipeline needs them
/// one after the other, and the link busy. So the window is twice bandwidth times delay, as measured, and three
/// messages more: one that is being sent, one that follows it, and a part of one. The delay is the time between two
/// polls, in which nothing is posted. Twice, since a link that is idle meanwhile seems slower than it is: so the window
/// doubles until it is busy.
///
/// The receiver may wait for a later message than those in the window. So the window grows while it should have moved.
/// Until two messages have been timed, the default network of the cost model counts. Not thread-safe.
class SendWindow {
 public:
  /// Whether a message takes so long that it counts.
  static bool counts(std::uint64_t bytes) { return bytes > kNetwork.eager_bytes; }

  /// What every transport buffers.
  static constexpr std::uint64_t unpolled_bytes() { return kNetwork.eager_bytes; }

  std::uint32_t messages() const {
    const double delay_ns = is_measured_ ? delay_ns_ : kNetwork.latency_seconds * 1e9;
    return 3 + static_cast<std::uint32_t>(2 * delay_ns / interval_ns_) + grown_;
  }
  /// How long the transport may be left alone without a loss: the time in which the link sends unpolled_bytes(). By
  /// messages during which this rank hardly slept: one that sleeps makes the link seem slow. 0 if there was none for
  /// long, or the last one was much slower or faster than usual, or if polls take much of that time: then it is the
  /// processor that moves the messages, not the link.
  std::uint64_t nap_ns() const {
    return last_ns_per_byte_ < kUsual * usual_ns_per_byte_ ? known_nap_ns(kMostUnwatched) : 0;
  }
  /// The same for a thread that nobody waits for. A message that was slow costs no time of a processor, so it is asleep
  /// then, and seldom stays awake to look at the link again.
  std::uint64_t background_nap_ns() const { return known_nap_ns(kMostUnwatchedInBackground); }

  /// Before each poll. `in_flight`: whether messages that count are.
  void poll(std::uint64_t now_ns, bool in_flight) {
    if (in_flight && polled_ns_ != 0) {
      const auto away_ns = static_cast<double>(now_ns - polled_ns_);
      delay_ns_ = std::max(away_ns, delay_ns_ * (1 - 1.0 / kMemory));
      const auto asleep_ns = static_cast<double>(now_ns - poll_ended_ns_);
      const bool has_slept = asleep_ns >= kShortestNapNs;
      if (has_slept) asleep_ns_ += asleep_ns;
      polls_awake_ = has_slept ? 0 : polls_awake_ + 1;
    }
    polled_ns_ = in_flight ? now_ns : 0;
    poll_ended_ns_ = now_ns;
  }
  /// After each poll while messages that count are in flight. The median of late counts: other processes may have had
  /// the core.
  void polled(std::uint64_t took_ns) {
    const auto took = static_cast<double>(took_ns);
    poll_ended_ns_ = polled_ns_ + took_ns;
    poll_ns_ = poll_ns_ == 0 ? took : poll_ns_ * (took > poll_ns_ ? 1 + kPollStep : 1 / (1 + kPollStep));
  }
  /// The poll has found that a message that counts has been sent or received. A poll may find several. Only those that
  /// were posted while others were on their way, or one poll later, show how long one takes: another one may have
  /// waited for its sender. And it shows the bandwidth only if the message before it was found when it came: what has
  /// come during a sleep is found at once.
  void done(std::uint64_t posted_ns, std::uint64_t bytes) {
    if (polled_ns_ != done_ns_) {
      const auto took_ns = static_cast<double>(polled_ns_ - done_ns_);
      is_timed_ = done_ns_ != 0 && static_cast<double>(posted_ns) <= static_cast<double>(done_ns_) + delay_ns_;
      is_watched_ = is_timed_ && was_awaited_ && asleep_ns_ <= kMostAsleep * took_ns;
      if (is_timed_) {
        took_ns_ = took_ns_ * kKept + took_ns;
        count_ *= kKept;
      }
      if (watched_bytes_ > 0) note_bandwidth();
      if (is_watched_) watched_ns_ = took_ns;
      unwatched_ = is_watched_ ? 0 : unwatched_ + 1;
      was_awaited_ = polls_awake_ > kPollsToCatchUp;
      polls_awake_ = 0;
      done_ns_ = polled_ns_;
      asleep_ns_ = 0;
    }
    if (is_watched_) watched_bytes_ += static_cast<double>(bytes);
    if (!is_timed_) return;
    count_ += 1;
    interval_ns_ = std::max(took_ns_ / count_, 1.0);
    is_measured_ = true;
  }

  /// After a poll that has moved something, or if nothing waits for room.
  void moved(bool is_any_waiting) {
    fruitless_polls_ = 0;
    stuck_ns_ = 0;
    grown_ = is_any_waiting ? grown_ - std::min(grown_, 1U) : 0;
  }
  /// After a poll that has moved nothing while messages wait for room.
  void stuck(std::uint64_t now_ns) {
    if (stuck_ns_ == 0) stuck_ns_ = now_ns;
    ++fruitless_polls_;
    const auto due_ns = static_cast<std::uint64_t>(messages() * interval_ns_);
    if (is_measured_ ? now_ns - stuck_ns_ <= due_ns : fruitless_polls_ < kUnmeasuredPolls) return;
    ++grown_;
    fruitless_polls_ = 0;
    stuck_ns_ = now_ns;
  }

 private:
  std::uint64_t known_nap_ns(std::uint32_t most_unwatched) const {
    const double nap_ns = usual_ns_per_byte_ * static_cast<double>(unpolled_bytes());
    const bool is_known = unwatched_ < most_unwatched && last_ns_per_byte_ * kUsual > usual_ns_per_byte_;
    return is_known && poll_ns_ <= kMostPolling * nap_ns ? static_cast<std::uint64_t>(nap_ns) : 0;
  }
  /// Of what the last poll has found. The median of late, since a peer may have been late.
  void note_bandwidth() {
    last_ns_per_byte_ = watched_ns_ / watched_bytes_;
    watched_bytes_ = 0;
    usual_ns_per_byte_ *= last_ns_per_byte_ > usual_ns_per_byte_ ? 1 + kStep : 1 / (1 + kStep);
  }

  static constexpr double kMostPolling = 0.2;  ///< share of a nap
  static constexpr double kPollStep = 0.1;
  static constexpr double kStep = 0.5;
  static constexpr double kUsual = 2;  ///< times slower or faster than the median
  static constexpr double kShortestNapNs{std::chrono::duration<double, std::nano>(Waiting::kShortestNap).count()};
  static constexpr double kMostAsleep = 0.1;           ///< share of a message's time
  static constexpr std::uint32_t kMostUnwatched = 32;  ///< polls that find messages in a row
  static constexpr std::uint32_t kMostUnwatchedInBackground = 8 * kMostUnwatched;
  static constexpr std::uint32_t kPollsToCatchUp = 2;    ///< some transports report messages one poll late
  static constexpr double kMemory = 16;                  ///< polls after which a long delay is forgotten
  static constexpr double kKept = 0.75;                  ///< of what was measured before, at each poll that measures
  static constexpr std::uint32_t kUnmeasuredPolls = 64;  ///< without progress

  static constexpr Machine::Network kNetwork{};  ///< until two messages have been timed

  double interval_ns_ = static_cast<double>(kNetwork.eager_bytes) * kNetwork.seconds_per_byte * 1e9;
  double delay_ns_ = 0;
  double took_ns_ = 0;  ///< for so many messages:
  double count_ = 0;
  double watched_ns_ = 0;  ///< for so many bytes, found by the last poll, if it is_watched_:
  double watched_bytes_ = 0;
  double usual_ns_per_byte_ = kNetwork.seconds_per_byte * 1e9;
  double last_ns_per_byte_ = 0;
  double asleep_ns_ = 0;           ///< or busy with something else, since the last message
  std::uint32_t polls_awake_ = 0;  ///< since the last message or sleep
  bool was_awaited_ = false;       ///< the last message: some polls before the one that found it had found nothing
  double poll_ns_ = 0;             ///< the median of late
  std::uint32_t unwatched_ = 0;
  bool is_timed_ = false;
  bool is_watched_ = false;
  bool is_measured_ = false;
  std::uint64_t polled_ns_ = 0;
  std::uint64_t poll_ended_ns_ = 0;
  std::uint64_t done_ns_ = 0;
  std::uint64_t stuck_ns_ = 0;  ///< since when nothing has moved
  std::uint32_t fruitless_polls_ = 0;
  std::uint32_t grown_ = 0;
};

}  // namespace penstock::engine
