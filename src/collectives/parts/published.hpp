// Rows `shared`: each rank shows the others of its node what they need, once, and takes what it needs from what they
// show. Short data goes by flags (Plan::by_flags). Cost: 1 round; each rank reads what it needs of what the others
// show.
#pragma once

#include <string>

#include "collectives/parts/arguments.hpp"

namespace penstock::collectives {

/// Bytes that the rank that shows most shows, equal on all ranks.
std::uint64_t published_bytes(const Team& team, const Collective& collective);

class Published {
 public:
  Published(std::string algorithm, const Team& team, const Collective& collective);

  /// Who sees whose contribution. One of these, once; `own` is that of this rank, if it has any.
  void to_all(Region own);
  void to_root(Region own);
  void from_root(Region own);
  void to_higher(Region own);

  /// to = the part of what `rank`, this one or one that it sees, contributes that begins at `offset_bytes`.
  void take(int rank, std::uint64_t offset_bytes, Region to);
  /// to = those parts of the ranks 0 to count - 1, combined in the order of the ranks.
  void combine(int count, std::uint64_t offset_bytes, Region to);

  Plan finish() &&;

 private:
  // `count` ranks from `first` on, modulo their number.
  void publish(Region own, int first, int count);
  void wait(int first, int count);

  const Team& team_;
  const Collective& collective_;
  Sequence sequence_;
  Region own_{};  ///< where this rank reads it itself: others take away the cache lines of what is shown
};

}  // namespace penstock::collectives
