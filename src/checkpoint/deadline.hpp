// How long a caller waits for a checkpoint.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "penstock/checkpoint.hpp"
#include "penstock/error.hpp"

namespace penstock::checkpoint {

/// Nothing: for ever.
using Deadline = std::optional<std::chrono::steady_clock::time_point>;

inline Deadline deadline_in(std::optional<std::chrono::milliseconds> limit) {
  if (!limit) return std::nullopt;
  return std::chrono::steady_clock::now() + *limit;
}

inline bool has_passed(const Deadline& deadline) { return deadline && std::chrono::steady_clock::now() >= *deadline; }

inline Error timed_out(std::uint64_t step, CheckpointLevel level) {
  return {ErrorCode::timed_out, "the checkpoint of step " + std::to_string(step) + " is not " +
                                    std::string(name(level)) + " within the time given; it goes on in the background"};
}

}  // namespace penstock::checkpoint
