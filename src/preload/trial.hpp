// Penstock and MPI serve the first calls of an operation in turns, and the faster one serves the others. Apart from
// MPI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::preload {

enum class Server : std::uint8_t { penstock, mpi };

/// What both took for a round, summed over its calls.
struct Times {
  double penstock = 0;
  double mpi = 0;
};

/// The calls of one operation of about one length on one communicator. A round is a block of calls by each. All ranks
/// make the same calls and are told the same sums over the ranks, so they come to the same decision at the same call.
class Trial {
 public:
  static constexpr std::size_t kRounds = 5;

  /// `bytes` of one call: the longer it is, the fewer calls there are in a round.
  explicit Trial(std::uint64_t bytes) noexcept;

  /// Who serves the next call.
  Server turn() const noexcept;
  bool is_over() const noexcept { return is_over_; }

  /// The next call has been served, and this rank was inside it for `time`. Returns whether a round ends with it. Then
  /// the ranks sum up their times() for judge() before the next call is added.
  bool add(double time) noexcept;
  /// Of this rank in the round that has just ended.
  const Times& times() const noexcept { return times_; }
  /// Takes the sums over the ranks, once for each round, in their order.
  void judge(const Times& round);

  /// How much longer MPI takes for a call, in the unit of the times summed over the ranks. 0 before it is over.
  double gain_per_call() const noexcept;

 private:
  std::uint64_t block_calls() const noexcept { return rounds_ == 0 ? 1 : calls_per_block_; }
  void decide(Server server) noexcept;

  std::uint64_t calls_per_block_;
  std::uint64_t rounds_ = 0;  ///< that have been played
  std::uint64_t calls_ = 0;   ///< in this round
  Times current_{};
  Times times_{};
  std::vector<Times> judged_{};  ///< the warm-up, one call each, is the first
  Server server_ = Server::penstock;
  bool is_over_ = false;
};

}  // namespace penstock::preload
