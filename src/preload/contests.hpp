// The trials of a communicator: which of its calls are measured, and the ranks' agreement on the times.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "penstock/comm.hpp"
#include "preload/by_length.hpp"
#include "preload/call.hpp"
#include "preload/contest.hpp"
#include "preload/shared_memory.hpp"
#include "preload/shared_times.hpp"

namespace penstock::preload {

/// Whether a reduction gives the same bits whoever serves it, in any order of the summands. True for other operations.
/// (Of zeros with two signs, and of values that are no numbers, MPI itself does not say which it gives.)
bool is_exact(const Call& call, int ranks);

/// Each of some doubles, combined over the ranks. Collective; waits for all ranks. Throws Penstock's Error.
void combine_over_ranks(Comm& comm, ReduceOp op, std::span<std::byte> doubles);

class Contests {
 public:
  /// That of a blocking call; nullptr if Penstock serves it without one. Equal on all ranks for correct calls.
  Contest* of(const Call& call, const Members& members);
  /// How much longer MPI would have taken for what Penstock has served by choice, in ticks of one rank.
  double gain_ticks(CollectiveKind kind, int ranks) const noexcept;
  /// Before other members are used: lets the ranks agree without a call that waits for all of them, if they can share
  /// memory. Collective over ranks of one node. Throws Penstock's Error.
  void share(Comm& comm, const Members& members);
  /// A round of the contest has ended with this call.
  void end_round(Contest& contest, const Call& call);
  /// Before a call of a contest whose trial asks: judges the round if the ranks agree on its times. Does not wait.
  void ask(Contest& contest);
  bool are_due() const noexcept { return !due_.empty(); }
  /// Judges the rounds that have ended. Collective; waits for all ranks. Throws Penstock's Error.
  void settle(Comm& comm);

 private:
  ByLength<Contest> all_{};
  /// Of operations whose lengths a rank does not know of others.
  std::array<std::unique_ptr<Contest>, kCollectiveKinds> of_any_length_{};
  std::unique_ptr<SharedMemory> memory_{};
  std::optional<SharedTimes> shared_times_{};
  std::size_t slots_ = 0;        ///< that contests have; given in the order in which their first rounds end
  std::vector<Contest*> due_{};  ///< in the order of the calls that ended their rounds
};

}  // namespace penstock::preload
