#include "preload/trial.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace penstock::preload {
namespace {

// Calls of less than a microsecond need many: the first ones find cold caches and mispredicted branches.
constexpr std::uint64_t kCallsPerBlock = 33;
constexpr std::uint64_t kBytesPerBlock = std::uint64_t{1} << 20U;
/// The first call of a block finds in the caches what the other server left, so one alone tells little.
constexpr std::uint64_t kLeastCalls = 2;
/// Of lengths that differ. Four of these count, and so do 32 of kCallsPerBlock: if two or four lengths take turns, each
/// has its share in both blocks.
constexpr std::uint64_t kLeastCallsOfLengths = 5;
/// One that is this much slower is called once in a round, and MPI has lost with a single round: ranks that outnumber
/// the cores can make its calls take milliseconds.
constexpr double kHopeless = 4;
constexpr double kClear = 1.25;  ///< in two rounds, one after the other
constexpr double kEven = 1.03;   ///< up to here Penstock serves
/// Of long calls a program may make few. So in the first rounds this much is enough for MPI to serve the next ones: it
/// is what the program had.
constexpr double kEnoughForMpi = 1.1;
constexpr std::uint64_t kCallsOfLong = 4;  ///< in a block, at most

// The rest after a round, in blocks. What is lost in a round is below 1% of the calls that follow it.
constexpr double kLeastRest = 50;  ///< clocks and the agreement take less than half a block of the shortest calls
constexpr double kRestPerLoss = 200;
constexpr unsigned kMostDoublings = 5;
constexpr double kMostSlowdown = 1e6;

/// Above 1: MPI is faster.
double advantage_of_mpi(const Times& round) {
  if (round.penstock <= 0) return 1;  // a clock that stood still
  return round.mpi > 0 ? round.penstock / round.mpi : std::numeric_limits<double>::infinity();
}

/// Of the slower one, at least 1.
double slowdown(const Times& round) {
  const double advantage = advantage_of_mpi(round);
  return std::min(std::max(advantage, 1 / advantage), kMostSlowdown);
}

/// MPI has, with this round alone.
bool has_lost(const Times& round) { return advantage_of_mpi(round) < 1 / kHopeless; }

Server faster(const Times& round) { return advantage_of_mpi(round) > kEven ? Server::mpi : Server::penstock; }

std::uint64_t calls_of_block(std::uint64_t bytes, std::uint64_t least) {
  return std::clamp<std::uint64_t>(kBytesPerBlock / std::max<std::uint64_t>(bytes, 1), least, kCallsPerBlock);
}

/// A call takes a time for itself and one for its bytes, so blocks that moved different numbers of bytes compare like
/// something between their calls and their bytes. nullopt if these favour different servers; otherwise the times by
/// which the slower one is less slow.
std::optional<Times> comparable(const Times& round) {
  if (round.penstock_bytes == round.mpi_bytes) return round;
  if (round.penstock_bytes <= 0 || round.mpi_bytes <= 0) return std::nullopt;
  Times by_bytes = round;
  by_bytes.mpi *= round.penstock_bytes / round.mpi_bytes;
  if (faster(by_bytes) != faster(round)) return std::nullopt;
  return slowdown(by_bytes) < slowdown(round) ? by_bytes : round;
}

}  // namespace

Trial::Trial(std::optional<std::uint64_t> bytes, Cost cost) noexcept
    : knows_length_(bytes.has_value()),
      calls_per_block_(calls_of_block(bytes.value_or(0), bytes.value_or(0) <= kBytesPerBlock ? kLeastCalls : 1)),
      cost_(cost) {}

Server Trial::turn() const noexcept {
  const bool is_second = calls_ >= block_calls_;
  return is_second != begins_with_mpi() ? Server::mpi : Server::penstock;
}

bool Trial::add(double time, double bytes) noexcept {
  // Before the first call of a block the ranks have done something else, so some wait in it for the others.
  const bool is_first = calls_ == 0 || calls_ == block_calls_;
  if (!is_first || block_calls_ == 1) {
    const bool by_mpi = turn() == Server::mpi;
    (by_mpi ? current_.mpi : current_.penstock) += time;
    (by_mpi ? current_.mpi_bytes : current_.penstock_bytes) += bytes;
  }
  if (++calls_ < 2 * block_calls_) return false;
  times_ = current_;
  current_ = {};
  calls_ = 0;
  judged_block_calls_ = block_calls_;
  measured_calls_ = std::max<std::uint64_t>(block_calls_ - 1, 1);
  hold();
  return true;
}

/// The smaller one of two in the middle.
template <typename Value>
double Trial::median_of(const Value& value) const {
  std::array<double, kRounds> values{};
  const auto end = std::transform(window_.begin(), window_.begin() + kept(), values.begin(), value);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((kept() - 1) / 2);
  std::nth_element(values.begin(), middle, end);
  return *middle;
}

void Trial::keep(const Times& per_call) noexcept {
  ++judged_;
  latest() = per_call;
}

/// Whether few turns are a noticeable part of what the program may call.
bool Trial::is_long() const noexcept {
  return knows_length_ && cost_ == Cost::slower_calls && calls_per_block_ <= kCallsOfLong;
}

bool Trial::penstock_leads() const noexcept {
  return has_chosen_ && choice_ == Server::penstock && median_of(advantage_of_mpi) < 1 / kClear;
}

/// Whether the first rounds give a choice.
bool Trial::open() noexcept {
  const double now = advantage_of_mpi(latest());
  if (has_lost(latest()) || (is_long() && !expects_penstock_ && now > kEnoughForMpi)) return true;
  if (judged_ >= 2) {
    const double before = advantage_of_mpi(window_[(judged_ - 2) % kRounds]);
    if (std::min(now, before) > kClear || std::max(now, before) < 1 / kClear) return true;
  }
  return judged_ == kRounds;
}

void Trial::vote() noexcept {
  const auto end = window_.begin() + static_cast<std::ptrdiff_t>(kept());
  const auto for_mpi = static_cast<std::size_t>(
      std::count_if(window_.begin(), end, [](const Times& round) { return faster(round) == Server::mpi; }));
  if (2 * for_mpi == kept()) return;
  const Server chosen = 2 * for_mpi > kept() ? Server::mpi : Server::penstock;
  if (chosen != choice_) doublings_ = 0;
  choice_ = chosen;
}

void Trial::rest() noexcept {
  const double slowed = median_of(slowdown);
  block_calls_ = slowed > kHopeless ? 1 : calls_per_block_;
  const bool beside = cost_ == Cost::all_calls;
  const double loss = kRestPerLoss * (beside ? slowed + 1 : slowed - 1);
  // A round that contradicts the choice is soon followed by another, and so is one that chose alone: what it says of
  // the loss may be as wrong as the choice.
  const bool is_only = judged_ == 1;
  const bool is_doubtful = faster(latest()) != choice_;
  if (is_doubtful) doublings_ = 0;
  const double blocks = is_only || (is_doubtful && !beside) ? kLeastRest : std::max(loss, kLeastRest);
  const std::uint64_t calls = beside ? judged_block_calls_ : block_calls_;
  rest_calls_ = static_cast<std::uint64_t>(blocks * static_cast<double>(calls)) << doublings_;
  // Lengths that are not known may change meanwhile.
  if (!is_only && knows_length_) doublings_ = std::min(doublings_ + 1, kMostDoublings);
}

/// After a round that says nothing.
void Trial::rest_undecided() noexcept {
  block_calls_ = calls_per_block_;
  const double loss = judged_ == 0 ? 0 : kRestPerLoss * (median_of(slowdown) - 1);
  rest_calls_ = static_cast<std::uint64_t>(std::max(loss, kLeastRest) * static_cast<double>(block_calls_));
}

void Trial::judge(const Times& round) {
  const auto calls = static_cast<double>(measured_calls_);
  ++rounds_;
  is_held_ = false;
  rest_calls_ = 0;
  if (!knows_length_) {
    const double bytes_per_call = (round.penstock_bytes + round.mpi_bytes) / (2 * calls);
    calls_per_block_ = calls_of_block(static_cast<std::uint64_t>(bytes_per_call), kLeastCallsOfLengths);
  }
  const std::optional<Times> compared = comparable(round);
  const Times per_call =
      compared ? Times{.penstock = compared->penstock / calls, .mpi = compared->mpi / calls} : Times{};
  if (!is_warm_) {
    is_warm_ = true;
    block_calls_ = calls_per_block_;
    // Other blocks than those of one call tell more.
    const bool is_enough =
        is_long() && !expects_penstock_ && calls_per_block_ == 1 && advantage_of_mpi(per_call) > kClear;
    if (!has_lost(per_call) && !is_enough) return;
    keep(per_call);
    choice_ = faster(per_call);
    has_chosen_ = true;
    return rest();
  }
  if (!compared) return rest_undecided();
  keep(per_call);
  const bool confirms_mpi = choice_ == Server::mpi && faster(latest()) == Server::mpi;
  if (has_chosen_ && judged_ == 2 && !has_lost(latest()) && !confirms_mpi) {
    // MPI may have set something up, or waited for a core, in the round that chose alone, so it begins anew with this
    // one. Even if it is slower in this one, too: a single call that finds cold caches is.
    window_[0] = latest();
    judged_ = 1;
    has_chosen_ = false;
    block_calls_ = calls_per_block_;
  }
  if (!has_chosen_ && !open()) return;
  if (!has_chosen_ && judged_ < kRounds) {
    choice_ = faster(latest());
  } else {
    vote();
  }
  has_chosen_ = true;
  rest();
}

double Trial::gain_per_call() const noexcept {
  return has_chosen_ ? median_of([](const Times& round) { return round.mpi - round.penstock; }) : 0;
}

}  // namespace penstock::preload
