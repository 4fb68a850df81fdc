// The trials of a communicator: which of its calls are measured, and the ranks' agreement on the times.
#pragma once

#include <cstdint>

#include "penstock/comm.hpp"
#include "preload/by_length.hpp"
#include "preload/call.hpp"
#include "preload/clock.hpp"
#include "preload/trial.hpp"

namespace penstock::preload {

class Contest {
 public:
  explicit Contest(std::uint64_t bytes) : trial_(bytes) {}

  /// Serves a call by `serve(server)`, which returns MPI's code, and measures it until it is known who is faster.
  /// Collective on `comm` for some of the calls, which may throw Penstock's Error.
  template <typename Serve>
  int play(Comm& comm, Serve serve) {
    const Server server = trial_.turn();
    if (trial_.is_over()) {
      if (server == Server::penstock) ++served_since_;
      return serve(server);
    }
    const std::uint64_t begin = ticks();
    const int result = serve(server);
    const std::uint64_t end = ticks();  // counters of two cores may differ
    add(comm, end > begin ? static_cast<double>(end - begin) : 0);
    return result;
  }
  bool is_over() const noexcept { return trial_.is_over(); }

  /// How much longer MPI would have taken for the calls since the contest was over, in ticks of one rank.
  double gain_ticks(int ranks) const noexcept {
    return static_cast<double>(served_since_) * trial_.gain_per_call() / ranks;
  }

 private:
  void add(Comm& comm, double time);

  Trial trial_;
  Times sums_{};  ///< of the round that is being agreed on
  Request agreement_{};
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

 private:
  ByLength<Contest> all_{};
};

}  // namespace penstock::preload
