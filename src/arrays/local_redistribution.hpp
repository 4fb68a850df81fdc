// One rank's side of a redistribution: the placement of its arrays, and its plan.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "penstock/redistribute.hpp"

namespace penstock::arrays {

/// Where this rank's arrays lie, one entry per pair. Empty entry: dense, as the layout says.
struct MemoryPlacement {
  std::vector<std::optional<LocalMemory>> inputs;
  std::vector<std::optional<LocalMemory>> outputs;

  friend bool operator==(const MemoryPlacement&, const MemoryPlacement&) = default;
};

/// The plan of one rank for one placement. Other ranks need to know neither. Thread-safe.
class LocalRedistribution {
 public:
  LocalRedistribution(std::span<const LayoutPair> pairs, const RedistributionOptions& options, const Team& team,
                      MemoryPlacement placement);

  const MemoryPlacement& placement() const { return placement_; }
  const std::shared_ptr<const Plan>& plan() const { return plan_; }
  /// Size of this rank's memory for a pair.
  std::uint64_t input_bytes(std::size_t pair) const { return input_bytes_[pair]; }
  std::uint64_t output_bytes(std::size_t pair) const { return output_bytes_[pair]; }

  /// The plan for memory at any addresses. `input` and `output` are address ranges that contain all arrays.
  std::shared_ptr<const Plan> plan_for(std::span<const ConstBytes> inputs, std::span<const Bytes> outputs,
                                       ConstBytes input, Bytes output);

 private:
  MemoryPlacement placement_;
  std::vector<std::uint64_t> input_bytes_;
  std::vector<std::uint64_t> output_bytes_;
  std::shared_ptr<const Plan> plan_;

  // A plan has one input and one output. For a batch these are the address ranges from its first to its last array; the
  // plan's regions are moved to the arrays' offsets. The moved plan is cached for the next run with the same arrays.
  struct Moved {
    std::vector<const std::byte*> addresses;
    std::shared_ptr<const Plan> plan;
  };
  std::mutex mutex_;
  Moved last_;
};

}  // namespace penstock::arrays
