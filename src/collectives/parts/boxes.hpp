// The planner of the rows `shared` of gatherv and scatterv, whose blocks have lengths that only two ranks know: the
// root and the rank that a block is of. So the length of a block decides how it travels, and nothing else does.
//
// Each rank that has blocks for others has a box for each of them beside its flag (Plan::by_flags). Its signal tells
// the length of the block, which lies in the box if it fits. A longer one follows as messages.
#pragma once

#include <cstdint>
#include <optional>

#include "collectives/parts/arguments.hpp"

namespace penstock::collectives {

/// The boxes beside the flag of one writer, for readers 0 to readers - 1.
class Boxes {
 public:
  /// All arguments must outlive it.
  Boxes(Sequence& sequence, const Team& team, const Collective& collective, int readers);
  /// Whether there is room for so many lengths. The boxes may be empty.
  static bool fit(int readers);

  // The writer calls these in this order, each for all readers. `block` is what it has for `reader`, which is `rank`.
  void put(int reader, Region block);
  void signal(int reader, int rank, Region block);
  void send(int reader, int rank, Region block);

  // The reader calls these in this order, each for all writers.
  void wait(int reader, int writer, Region block);
  void take(int reader, int writer, Region block);

 private:
  static std::uint64_t first_byte(int readers);
  static std::uint64_t box_bytes(int readers);
  Region length(int reader, Region block) const;
  /// Where a block of this length lies; none if it does not fit.
  std::optional<Region> place(int reader, std::uint64_t size_bytes) const;
  std::uint64_t pieces(std::uint64_t size_bytes) const;
  Region piece(Region block, std::uint64_t index) const;

  Sequence& sequence_;
  const Team& team_;
  const Collective& collective_;
  int readers_;
  StepId last_signal_ = Sequence::kNone;  ///< pieces come after the length: one alone tells nothing of the block
  bool has_memory_ = false;
};

}  // namespace penstock::collectives
