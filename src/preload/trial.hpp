// Penstock and MPI serve some calls of an operation in turns, and the faster one serves the others, until the next
// turns. Apart from MPI.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

namespace penstock::preload {

enum class Server : std::uint8_t { penstock, mpi };

/// What both took for a round, summed over its calls.
struct Times {
  double penstock = 0;
  double mpi = 0;
  double penstock_bytes = 0;  ///< that its calls moved; 0 in trials whose calls have one length
  double mpi_bytes = 0;

  Times& operator+=(const Times& other) noexcept {
    penstock += other.penstock;
    mpi += other.mpi;
    penstock_bytes += other.penstock_bytes;
    mpi_bytes += other.mpi_bytes;
    return *this;
  }
};

/// Sums over the ranks as a Trial takes them.
inline Times with_mean_bytes(Times sums, int ranks) noexcept {
  sums.penstock_bytes /= ranks;
  sums.mpi_bytes /= ranks;
  return sums;
}

/// The calls of one operation of about one length on one communicator. A round is a block of calls by each. The first
/// rounds follow each other until there is a choice; between later ones there are calls that are not measured. All
/// ranks make the same calls and are told the same times of all together, so they make the same choice at the same
/// call.
class Trial {
 public:
  static constexpr std::size_t kRounds = 5;  ///< the last ones vote

  /// What a round costs the program.
  enum class Cost : std::uint8_t {
    slower_calls,  ///< its calls are the program's own
    all_calls,     ///< they are made beside the program's
  };

  /// `bytes` of one call: the longer it is, the fewer calls there are in a round. nullopt if the ranks do not know it
  /// of each other: then each round tells it for the next one.
  explicit Trial(std::optional<std::uint64_t> bytes, Cost cost = Cost::slower_calls) noexcept;

  /// Who serves the calls that are not measured.
  Server choice() const noexcept { return choice_; }
  bool has_chosen() const noexcept { return has_chosen_; }
  /// Whether it has chosen Penstock, which is clearly faster.
  bool penstock_leads() const noexcept;
  /// Before the first call: Penstock leads with shorter calls. Then a single round is not enough for MPI.
  void expect_penstock() noexcept { expects_penstock_ = true; }
  /// Whether all its calls have about one length.
  bool knows_length() const noexcept { return knows_length_; }

  /// Counts a call that is not measured. False, and it counts nothing, if the call is part of a round.
  bool rests() noexcept {
    if (rest_calls_ == 0) return false;
    --rest_calls_;
    if (has_chosen_ && choice_ == Server::penstock) ++gained_calls_;
    return true;
  }

  /// Who serves the next call of a round.
  Server turn() const noexcept;
  /// Whether MPI has the first block of this round.
  bool begins_with_mpi() const noexcept { return rounds_ % 2 == 1; }
  /// A call of a round has been served, and this rank was inside it for `time`. `bytes` that it moved, unless the trial
  /// knows the length. Returns whether the round ends with it. Then the ranks sum up their times() for judge(); until
  /// then no call is part of a round.
  bool add(double time, double bytes = 0) noexcept;
  /// Of this rank in the round that has just ended.
  const Times& times() const noexcept { return times_; }

  /// For a round that is not played by add(): no call is part of one until judge().
  void hold() noexcept {
    is_held_ = true;
    rest_calls_ = kUntilJudged;
  }

  /// After a round: from time to time it asks() whether the ranks know the sums. Then either judge() or hold_longer()
  /// follows, before the call is served.
  void hold_until_asked() noexcept {
    asked_ = 0;
    rest_calls_ = judged_block_calls_;
  }
  void hold_longer() noexcept {
    ++asked_;
    rest_calls_ = judged_block_calls_ << (asked_ < kMostAskDoublings ? asked_ : kMostAskDoublings);
  }
  bool asks() const noexcept { return is_held_ && rest_calls_ == 0; }
  /// How often since the round.
  unsigned asked() const noexcept { return asked_; }
  /// Those that have been judged.
  std::uint64_t rounds() const noexcept { return rounds_; }
  /// For such a round: what calls there were in the block of each.
  void set_block_calls(std::uint64_t calls) noexcept { judged_block_calls_ = calls; }

  /// Takes the times of the ranks, summed up or those of the slowest, and the means of the bytes, once for each round,
  /// in their order.
  void judge(const Times& round);

  /// How much longer MPI takes for a call, in the unit of the judged times. 0 before there is a choice.
  double gain_per_call() const noexcept;
  /// How much longer MPI would have taken for the calls that Penstock served by choice, outside of rounds.
  double gain() const noexcept { return static_cast<double>(gained_calls_) * gain_per_call(); }

 private:
  static constexpr std::uint64_t kUntilJudged = std::numeric_limits<std::uint64_t>::max();
  static constexpr unsigned kMostAskDoublings = 16;

  std::size_t kept() const noexcept { return judged_ < kRounds ? judged_ : kRounds; }
  Times& latest() noexcept { return window_[(judged_ - 1) % kRounds]; }
  template <typename Value>
  double median_of(const Value& value) const;
  void keep(const Times& per_call) noexcept;
  bool open() noexcept;
  bool is_long() const noexcept;
  void vote() noexcept;
  void rest() noexcept;
  void rest_undecided() noexcept;

  bool knows_length_;
  std::uint64_t calls_per_block_;
  Cost cost_;
  bool has_chosen_ = false;
  bool expects_penstock_ = false;
  Server choice_ = Server::penstock;
  std::uint64_t rest_calls_ = 0;  ///< before the next round
  std::uint64_t gained_calls_ = 0;
  std::uint64_t block_calls_ = 1;  ///< in this round
  std::uint64_t judged_block_calls_ = 1;
  std::uint64_t measured_calls_ = 1;
  std::uint64_t rounds_ = 0;  ///< that have been judged
  bool is_held_ = false;      ///< a round has ended, and is not judged yet
  unsigned asked_ = 0;
  std::uint64_t calls_ = 0;  ///< in this round
  unsigned doublings_ = 0;   ///< of the rest
  Times current_{};
  Times times_{};
  bool is_warm_ = false;
  std::size_t judged_ = 0;               ///< rounds, apart from the warm-up
  std::array<Times, kRounds> window_{};  ///< for one call: of the last rounds
};

}  // namespace penstock::preload
