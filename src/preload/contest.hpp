// The trial of the blocking calls of one operation, and length if the ranks know it: measures those of a round. Apart
// from MPI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "preload/trial.hpp"

namespace penstock::preload {

class Contest {
 public:
  explicit Contest(std::optional<std::uint64_t> bytes) : trial_(bytes) {}

  /// Serves a call by `serve(server, is_measured)`, which returns MPI's code. The trial must not be asking. `now()` is
  /// a clock of this rank, and `bytes()` what the rank moves in the call. Sets `ends_round` if the times are to be
  /// summed up over the ranks, and judged.
  template <typename Serve, typename Now, typename BytesOf>
  int play(bool& ends_round, Serve serve, Now now, BytesOf bytes) {
    if (trial_.rests()) return serve(trial_.choice(), false);
    const std::uint64_t moved_bytes = trial_.knows_length() ? 0 : bytes();
    const std::uint64_t begin = now();
    const int result = serve(trial_.turn(), true);
    const std::uint64_t end = now();  // counters of two cores may differ
    ends_round = trial_.add(end > begin ? static_cast<double>(end - begin) : 0, static_cast<double>(moved_bytes));
    return result;
  }

  Trial& trial() noexcept { return trial_; }
  const Trial& trial() const noexcept { return trial_; }
  /// The trial's slot of SharedTimes, if it has one.
  std::optional<std::size_t> slot{};
  bool has_expectation = false;  ///< or there was nothing to expect

 private:
  Trial trial_;
};

}  // namespace penstock::preload
