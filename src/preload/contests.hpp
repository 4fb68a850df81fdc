// The trials of a communicator: which of its calls are measured, and the ranks' agreement on the times.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "penstock/comm.hpp"
#include "preload/by_length.hpp"
#include "preload/call.hpp"
#include "preload/contest.hpp"

namespace penstock::preload {

/// Whether a reduction gives the same bits whoever serves it, in any order of the summands. True for other operations.
/// (Of zeros with two signs, and of values that are no numbers, MPI itself does not say which it gives.)
bool is_exact(const Call& call, int ranks);

/// Sums up the members of each over the ranks. Collective; waits for all ranks. Throws Penstock's Error.
void sum_over_ranks(Comm& comm, std::vector<Times>& times);

class Contests {
 public:
  /// That of a blocking call; nullptr if Penstock serves it without one. Equal on all ranks for correct calls.
  Contest* of(const Call& call, const Members& members);
  double gain_ticks(CollectiveKind kind, int ranks) const noexcept;
  void add_due(Contest& contest) { due_.push_back(&contest); }
  bool are_due() const noexcept { return !due_.empty(); }
  /// Judges the rounds that have ended. Collective; waits for all ranks. Throws Penstock's Error.
  void settle(Comm& comm);

 private:
  ByLength<Contest> all_{};
  /// Of operations whose lengths a rank does not know of others.
  std::array<std::unique_ptr<Contest>, kCollectiveKinds> of_any_length_{};
  std::vector<Contest*> due_{};  ///< in the order of the calls that ended their rounds
};

}  // namespace penstock::preload
