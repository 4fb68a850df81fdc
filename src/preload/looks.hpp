// Non-blocking calls of one operation whose lengths a rank does not know of others. Each rank keeps a few calls, the
// same ones on all. In the next call that waits for all ranks they look how long these were, and the trial of about
// this length has the calls that follow. Apart from MPI.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "preload/trial.hpp"

namespace penstock::preload {

/// Its members depend on the number of calls, and on what the ranks have agreed: so they are equal on all ranks at the
/// same call.
class Looks {
 public:
  /// For one look: lengths that take turns by two or four have their shares.
  static constexpr std::size_t kKept = 4;

  static Trial new_trial() noexcept { return Trial(std::nullopt, Trial::Cost::all_calls); }

  /// Counts a call that is not to be kept. False, and it counts nothing, for others. `trial`: in all functions the one
  /// that has the calls now; at first new_trial().
  bool rests(Trial& trial) noexcept {
    if (calls_before_ == 0) return false;
    --calls_before_;
    count(trial);
    return true;
  }

  /// Counts a call that is kept. Whether it is the last one before a look.
  bool keep(Trial& trial) noexcept {
    count(trial);
    if (++kept_ < kKept) return false;
    calls_before_ = kUntilLook;
    return true;
  }

  /// The ranks have looked: the greatest mean of the kept calls, over the ranks. nullopt if a rank does not know its
  /// own. Makes `trial` that of this length. Whether a rehearsal is due.
  bool look(Trial& trial, std::optional<std::uint64_t> bytes) {
    kept_ = 0;
    const std::uint64_t fit = kBytesBetween / std::max<std::uint64_t>(bytes.value_or(1), 1);
    calls_before_ = std::clamp<std::uint64_t>(fit, kLeastBetween, kMostBetween);
    const std::uint64_t calls = std::exchange(calls_, 0);
    if (!bytes) return false;
    if (const int length = std::bit_width(*bytes); length != length_) {
      all_[length_].trial = trial;
      trial = all_[length].trial;
      length_ = length;
    }
    all_[length_].calls += calls;
    return !trial.rests();
  }

  /// About how many calls of the length that the last look has found were made until then.
  std::uint64_t calls() const { return all_.at(length_).calls; }

 private:
  static constexpr std::uint64_t kUntilLook = std::numeric_limits<std::uint64_t>::max();
  /// Calls between looks. A look costs about as much as the shortest call.
  static constexpr std::uint64_t kLeastBetween = 4;
  static constexpr std::uint64_t kMostBetween = 124;
  static constexpr std::uint64_t kBytesBetween = std::uint64_t{1} << 20U;

  struct Length {
    Trial trial = new_trial();
    std::uint64_t calls = 0;
  };

  void count(Trial& trial) noexcept {
    ++calls_;
    if (trial.has_chosen()) trial.rests();
  }

  std::uint64_t calls_before_ = 0;  ///< that are not kept
  std::size_t kept_ = 0;
  std::uint64_t calls_ = 0;      ///< since the last look
  int length_ = 0;               ///< binary digits
  std::map<int, Length> all_{};  ///< the trial of this length is elsewhere
};

}  // namespace penstock::preload
