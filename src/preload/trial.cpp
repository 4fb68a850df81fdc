#include "preload/trial.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <span>

namespace penstock::preload {
namespace {

// Calls of less than a microsecond need many: the first ones find cold caches and mispredicted branches.
constexpr std::uint64_t kCallsPerBlock = 33;
constexpr std::uint64_t kBytesPerBlock = std::uint64_t{1} << 20U;
/// An MPI that is this much slower even in the warm-up is not called again: ranks that outnumber the cores can make its
/// calls take milliseconds.
constexpr double kHopeless = 4;
constexpr double kFarAhead = 1.6;  ///< for Penstock in one round
constexpr double kClear = 1.25;    ///< in two rounds, one after the other
constexpr double kEven = 1.03;     ///< in the median of all rounds

/// Above 1: MPI is faster.
double advantage_of_mpi(const Times& round) {
  if (round.penstock <= 0) return 1;  // a clock that stood still
  return round.mpi > 0 ? round.penstock / round.mpi : std::numeric_limits<double>::infinity();
}

template <typename Value>
double median_of(std::span<const Times> rounds, const Value& value) {
  std::array<double, Trial::kRounds> values{};
  std::transform(rounds.begin(), rounds.end(), values.begin(), value);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(rounds.size() / 2);
  std::nth_element(values.begin(), middle, values.begin() + static_cast<std::ptrdiff_t>(rounds.size()));
  return *middle;
}

}  // namespace

Trial::Trial(std::uint64_t bytes) noexcept
    : calls_per_block_(
          std::clamp<std::uint64_t>(kBytesPerBlock / std::max<std::uint64_t>(bytes, 1), 1, kCallsPerBlock)) {}

Server Trial::turn() const noexcept {
  if (is_over_) return server_;
  const bool is_second = calls_ >= block_calls();
  const bool mpi_first = rounds_ % 2 == 1;
  return is_second != mpi_first ? Server::mpi : Server::penstock;
}

bool Trial::add(double time) noexcept {
  // Before the first call of a block the ranks have done something else, so some wait in it for the others.
  const bool is_first = calls_ == 0 || calls_ == block_calls();
  if (!is_first || block_calls() == 1) (turn() == Server::mpi ? current_.mpi : current_.penstock) += time;
  if (++calls_ < 2 * block_calls()) return false;
  times_ = current_;
  current_ = {};
  calls_ = 0;
  ++rounds_;
  return true;
}

void Trial::judge(const Times& round) {
  judged_.push_back(round);
  if (judged_.size() == 1) {
    if (round.penstock > 0 && round.mpi > kHopeless * round.penstock) decide(Server::penstock);
    return;
  }
  if (advantage_of_mpi(round) < 1 / kFarAhead) return decide(Server::penstock);
  const std::span<const Times> rounds = std::span(judged_).subspan(1);
  if (rounds.size() >= 2) {
    const auto [least, most] =
        std::minmax({advantage_of_mpi(rounds[rounds.size() - 1]), advantage_of_mpi(rounds[rounds.size() - 2])});
    if (least > kClear) return decide(Server::mpi);
    if (most < 1 / kClear) return decide(Server::penstock);
  }
  if (rounds.size() == kRounds) decide(median_of(rounds, advantage_of_mpi) > kEven ? Server::mpi : Server::penstock);
}

double Trial::gain_per_call() const noexcept {
  if (!is_over_) return 0;
  const auto difference = [](const Times& round) { return round.mpi - round.penstock; };
  if (judged_.size() == 1) return difference(judged_.front());
  const std::uint64_t measured_calls = std::max<std::uint64_t>(calls_per_block_ - 1, 1);
  return median_of(std::span(judged_).subspan(1), difference) / static_cast<double>(measured_calls);
}

void Trial::decide(Server server) noexcept {
  server_ = server;
  is_over_ = true;
}

}  // namespace penstock::preload
