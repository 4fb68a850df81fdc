// How many bytes of reads are to be in flight.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace penstock {

/// Not thread-safe. The bandwidth-delay product of storage: highest rate x lowest latency, both as measured. So does
/// BBR (Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue 2016). Until the rate stops to grow, the
/// window grows with each round; then it is twice the product, since reads do not arrive evenly. Others that are queued
/// before a read make it longer, so two rounds of every kCycle have half the product in flight, and the second of them
/// renews the latency.
class ReadWindow {
 public:
  /// A read that began and ended at these times of one clock, in seconds. `bytes` may be 1 if nobody knows them.
  void finished(double begin_s, double end_s, std::uint64_t bytes) {
    if (reads_ == 0) round_begin_s_ = begin_s;
    bytes_ += bytes;
    ++reads_;
    round_bytes_ += bytes;
    if (begin_s >= round_begin_s_) {
      begun_s_ += end_s - begin_s;
      ++begun_;
    }
    // Long reads end late: a round that ends earlier would miss them.
    if (begun_ >= kReadsOfRound && (end_s - round_begin_s_) * begun_ >= 2 * begun_s_ && end_s > round_begin_s_)
      end_round(end_s);
  }

  /// 0 before the first round has ended.
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(gain() * rate() * latency_s_); }
  /// The same as a number of reads, of the mean size.
  double reads() const {
    return reads_ == 0 ? 0 : static_cast<double>(bytes()) * static_cast<double>(reads_) / static_cast<double>(bytes_);
  }
  double latency_s() const { return latency_s_; }
  double rate() const { return *std::max_element(rates_.begin(), rates_.end()); }  ///< in bytes per second

 private:
  static constexpr double kStartGain = 2.89;  // BBR's 2 / ln 2: the rate doubles with each round
  static constexpr double kGain = 2;          // BBR's cwnd_gain
  static constexpr double kProbeGain = 0.5;
  static constexpr std::size_t kCycle = 32;  // rounds
  // BBR: the rate has stopped to grow if it grew by less than a quarter in three rounds.
  static constexpr double kGrowth = 1.25;
  static constexpr int kRoundsWithoutGrowth = 3;
  static constexpr int kReadsOfRound = 4;

  double gain() const {
    if (!full_) return kStartGain;
    return rounds_ % kCycle >= kCycle - 2 ? kProbeGain : kGain;
  }

  void end_round(double now_s) {
    const double latency_s = begun_s_ / begun_;
    const bool renews = rounds_ == 0 || (full_ && rounds_ % kCycle == kCycle - 1);
    latency_s_ = renews ? latency_s : std::min(latency_s_, latency_s);
    rates_[rounds_ % kCycle] = static_cast<double>(round_bytes_) / (now_s - round_begin_s_);
    ++rounds_;
    if (rate() > kGrowth * full_rate_) {
      full_rate_ = rate();
      without_growth_ = 0;
    } else if (++without_growth_ >= kRoundsWithoutGrowth) {
      full_ = true;
    }
    round_begin_s_ = now_s;
    round_bytes_ = 0;
    begun_ = 0;
    begun_s_ = 0;
  }

  std::array<double, kCycle> rates_{};
  double latency_s_ = 0;
  double full_rate_ = 0;
  int without_growth_ = 0;
  bool full_ = false;
  std::uint64_t rounds_ = 0;
  double round_begin_s_ = 0;
  std::uint64_t round_bytes_ = 0;
  double begun_s_ = 0;  ///< of the reads that began in this round and have ended
  int begun_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t reads_ = 0;
};

}  // namespace penstock
