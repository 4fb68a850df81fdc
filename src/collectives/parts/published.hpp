// The planner of the rows `shared`: each rank publishes its contribution in shared memory once, and reads what it needs
// from the others. Short data uses flags (Plan::by_flags). Cost: 1 round.
#pragma once

#include <string>

#include "collectives/parts/arguments.hpp"

namespace penstock::collectives {

/// The largest number of bytes that a rank publishes; equal on all ranks.
std::uint64_t published_bytes(const Team& team, const Collective& collective);

/// Builds one rank's plan. `team` and `collective` must outlive it.
class Published {
 public:
  Published(std::string algorithm, const Team& team, const Collective& collective);

  /// Which ranks read the contribution of which. Call exactly one of these, once. `own` is this rank's contribution, if
  /// it has one.
  void to_all(Region own);
  void to_root(Region own);
  void from_root(Region own);
  void to_higher(Region own);
  void to_neighbors(Region own);

  /// to = the bytes from `offset_bytes` on of the contribution of `rank`: this rank, or one that it reads.
  void take(int rank, std::uint64_t offset_bytes, Region to);
  /// to = the same bytes of the ranks 0 to count - 1, combined in rank order.
  void combine(int count, std::uint64_t offset_bytes, Region to);

  Plan finish() &&;

 private:
  // `count` ranks from `first` on, modulo their number.
  void publish(Region own, int first, int count);
  void wait(int first, int count);

  const Team& team_;
  const Collective& collective_;
  Sequence sequence_;
  Region own_{};  ///< this rank reads its private copy, since readers take the cache lines of the published one
};

}  // namespace penstock::collectives
