#include "preload/trial.hpp"

#include <algorithm>
#include <limits>

namespace penstock::preload {
namespace {

constexpr std::uint64_t kCallsPerBlock = 8;
constexpr std::uint64_t kBytesPerBlock = std::uint64_t{1} << 20U;
/// An MPI that is this much slower even in the warm-up is not called again: ranks that outnumber the cores can make its
/// calls take milliseconds.
constexpr double kHopeless = 4;
constexpr double kClear = 1.25;  ///< in two rounds, one after the other
constexpr double kEven = 1.03;   ///< in the median of all rounds

/// Above 1: MPI is faster.
double advantage_of_mpi(const Times& round) {
  if (round.penstock <= 0) return 1;  // a clock that stood still
  return round.mpi > 0 ? round.penstock / round.mpi : std::numeric_limits<double>::infinity();
}

}  // namespace

Trial::Trial(std::uint64_t bytes) noexcept
    : calls_per_block_(std::clamp<std::uint64_t>(kBytesPerBlock / std::max<std::uint64_t>(bytes, 1), 1,
                                                 kCallsPerBlock)) {}

Server Trial::turn() const noexcept {
  if (is_over_) return server_;
  const bool is_second = calls_ >= block_calls();
  const bool mpi_first = rounds_ % 2 == 1;
  return is_second != mpi_first ? Server::mpi : Server::penstock;
}

bool Trial::add(double time) noexcept {
  (turn() == Server::mpi ? current_.mpi : current_.penstock) += time;
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
  std::vector<double> advantages;
  for (std::size_t i = 1; i < judged_.size(); ++i) advantages.push_back(advantage_of_mpi(judged_[i]));
  if (advantages.size() >= 2) {
    const auto [least, most] = std::minmax(advantages[advantages.size() - 1], advantages[advantages.size() - 2]);
    if (least > kClear) return decide(Server::mpi);
    if (most < 1 / kClear) return decide(Server::penstock);
  }
  if (advantages.size() < kRounds) return;
  std::nth_element(advantages.begin(), advantages.begin() + kRounds / 2, advantages.end());
  decide(advantages[kRounds / 2] > kEven ? Server::mpi : Server::penstock);
}

double Trial::gain_per_call() const noexcept {
  if (!is_over_) return 0;
  const bool only_warm_up = judged_.size() == 1;
  double difference = 0;
  for (std::size_t i = only_warm_up ? 0 : 1; i < judged_.size(); ++i)
    difference += judged_[i].mpi - judged_[i].penstock;
  const auto calls = only_warm_up ? 1.0 : static_cast<double>((judged_.size() - 1) * calls_per_block_);
  return difference / calls;
}

void Trial::decide(Server server) noexcept {
  server_ = server;
  is_over_ = true;
}

}  // namespace penstock::preload
