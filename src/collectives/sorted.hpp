// Reductions in an order that follows from the values: each element's contributions come together on one rank, which
// sorts and combines them (plan/fold.hpp).
#pragma once

#include <cstdint>

#include "collectives/algorithms.hpp"
#include "collectives/group.hpp"

namespace penstock::collectives {

/// Room for what all ranks contribute to one piece of the result, for a few pieces in turn.
class SortedPieces {
 public:
  SortedPieces(Sequence& sequence, const Team& team, std::uint64_t largest_bytes);

  /// Gets this rank's piece from every rank, and combines it into `target`. `own` is this rank's contribution to it;
  /// `give(peer)` the contribution to the piece that `peer` combines meanwhile, empty where there is none.
  template <class Give>
  void run(std::uint32_t number, Region own, Region target, const Give& give) {
    const int size = ring_.size();
    for (int round = 1; round < size; ++round) {
      const int next = ring_[(ring_.self + round) % size];
      sequence_.send(give(next), next, number);
    }
    receive(number, own, target);
  }

 private:
  static constexpr std::uint32_t kInFlight = 2;

  void receive(std::uint32_t number, Region own, Region target);

  Sequence& sequence_;
  Group ring_;
  int rank_;
  std::uint64_t stride_bytes_;
  Region memory_;
};

/// reduce and allreduce.
Plan reduce_sorted_whole(const std::string& algorithm, const Team& team, const Collective& what);
Plan reduce_sorted_at_once(const std::string& algorithm, const Team& team, const Collective& what);
/// reduce_scatter and reduce_scatter_block.
Plan reduce_parts_sorted(const std::string& algorithm, const Team& team, const Collective& what);

}  // namespace penstock::collectives
