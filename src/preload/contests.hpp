// The trials of a communicator: which of its calls are measured, and the ranks' agreement on the times.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/comm.hpp"
#include "preload/by_length.hpp"
#include "preload/call.hpp"
#include "preload/clock.hpp"
#include "preload/trial.hpp"

namespace penstock::preload {

/// The trial of one operation and length.
class Contest {
 public:
  explicit Contest(std::uint64_t bytes) : trial_(bytes) {}

  /// Serves a call by `serve(server)`, which returns MPI's code, and measures it until it is known who is faster. Sets
  /// `ends_round` if settle() is to be called; until then Penstock serves.
  template <typename Serve>
  int play(bool& ends_round, Serve serve) {
    const Server server = is_due_ ? Server::penstock : trial_.turn();
    if (is_due_ || trial_.is_over()) {
      if (server == Server::penstock) ++served_since_;
      return serve(server);
    }
    const std::uint64_t begin = ticks();
    const int result = serve(server);
    const std::uint64_t end = ticks();  // counters of two cores may differ
    ends_round = is_due_ = trial_.add(end > begin ? static_cast<double>(end - begin) : 0);
    return result;
  }
  bool is_over() const noexcept { return trial_.is_over(); }
  /// Judges the round that has ended. Collective; waits for all ranks.
  void settle(Comm& comm);

  /// How much longer MPI would have taken for the calls since the contest was over, in ticks of one rank.
  double gain_ticks(int ranks) const noexcept {
    return static_cast<double>(served_since_) * trial_.gain_per_call() / ranks;
  }

 private:
  Trial trial_;
  bool is_due_ = false;  ///< a round has ended and is not judged yet
  std::uint64_t served_since_ = 0;
};

/// Whether a reduction gives the same bits whoever serves it, in any order of the summands. True for other operations.
/// (Of zeros with two signs, and of values that are no numbers, MPI itself does not say which it gives.)
bool is_exact(const Call& call, int ranks);

/// The allreduce of Times in place.
Collective sum_over_ranks();

class Contests {
 public:
  /// That of a blocking call; nullptr if Penstock serves it without one. Equal on all ranks for correct calls.
  Contest* of(const Call& call, const Members& members);
  double gain_ticks(CollectiveKind kind, int ranks) const noexcept;
  void add_due(Contest& contest) { due_.push_back(&contest); }
  bool are_due() const noexcept { return !due_.empty(); }
  /// Settles all that are due. Collective; waits for all ranks. Throws Penstock's Error.
  void settle(Comm& comm);

 private:
  ByLength<Contest> all_{};
  std::vector<Contest*> due_{};  ///< in the order of the calls that ended their rounds
};

}  // namespace penstock::preload
