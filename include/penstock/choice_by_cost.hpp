// Choices of algorithms by their cost on a known machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/collective.hpp"
#include "penstock/cost_model.hpp"
#include "penstock/export.hpp"
#include "penstock/plan.hpp"

namespace penstock {

/// How long a row took on a node, until all of its ranks had completed it.
struct RowTime {
  const Algorithm* algorithm;
  std::uint64_t bytes;            ///< of one rank's contribution, as Tuning::Point::bytes
  std::uint64_t nanoseconds = 0;  ///< 0: not measured
};

/// Chooses for one team on one machine, and remembers what it chose: lengths within a fifth of each other, and roots on
/// nodes of the same size, have one choice. The choice does not depend on which calls came before. Any thread.
class PENSTOCK_API ChoiceByCost {
 public:
  struct Candidate {
    const Algorithm* algorithm;
    double seconds;                   ///< an estimate, of the length that stands for its class
    std::uint64_t segment_bytes = 0;  ///< as Choice::segment_bytes
  };
  struct Chosen {
    const Algorithm* algorithm;
    std::string reason;
    std::uint64_t segment_bytes = 0;
    std::vector<Candidate> candidates{};  ///< whose estimate was needed, the cheapest first
  };

  /// `team.rank` and `team.by_cost` do not count.
  ChoiceByCost(const Team& team, const Machine& machine);
  /// Of one node, whose caches, copies and system calls no model prices well enough: by the times of its rows.
  ChoiceByCost(const Team& team, std::shared_ptr<const std::vector<RowTime>> times);
  ~ChoiceByCost();
  ChoiceByCost(const ChoiceByCost&) = delete;
  ChoiceByCost& operator=(const ChoiceByCost&) = delete;

  const Machine& machine() const noexcept;
  /// The row of least cost. It stays the one that is chosen without a machine unless another one gains a tenth. nullptr
  /// if thresholds decide: on one node without times or for lengths that were not measured, beside communication cores,
  /// for operations without estimates (reduce_scatter and allgatherv have those of the operations without counts,
  /// between nodes, if no block is longer than twice the mean), for a split, an order of combination or no data. May
  /// not fit: lengths of a class differ. The arguments must be correct, as choose() checks them.
  std::shared_ptr<const Chosen> find(const Collective& collective) const;
  /// Collective::radix of a row that takes least: of exchanges between nodes in which each sends several short messages
  /// at once. Of other rows that of `collective`.
  int radix_of(const Algorithm& row, const Collective& collective) const;

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
};

}  // namespace penstock
