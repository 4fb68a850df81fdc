// What all ranks have agreed on about a redistribution, and this rank's plans for it. It holds no communicator, so that
// a communicator can cache it.
#pragma once

#include <complex>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "arrays/local_redistribution.hpp"
#include "penstock/comm.hpp"
#include "penstock/redistribute.hpp"

namespace penstock::arrays {

/// alpha and beta of a run.
struct Factors {
  std::complex<double> alpha;
  std::complex<double> beta;
};

/// The result of planning. RedistributionBatch and RecentRedistributions share its ownership. Its runs may be in flight
/// together; one thread at a time starts them, as for the communicator.
class PlannedRedistribution {
 public:
  /// Collective; see RedistributionBatch.
  static std::shared_ptr<PlannedRedistribution> plan(Comm& comm, std::vector<LayoutPair> pairs,
                                                     const RedistributionOptions& options);

  std::size_t size() const { return pairs_.size(); }
  const std::vector<LayoutPair>& pairs() const { return pairs_; }
  const RedistributionOptions& options() const { return options_; }
  const std::vector<Relabeling>& relabelings() const { return relabelings_; }
  /// This rank's plan for the placement in the options.
  const LocalRedistribution& local() const { return *planned_; }
  std::uint64_t workspace_bytes(const Team& team);
  /// The memory of the plan and the layouts, on the rank with the most. Collective.
  std::uint64_t agree_on_bytes(Comm& comm) const;

  /// `placement`: nullptr means the placement in the options.
  Request start(Comm& comm, std::span<const ConstBytes> inputs, std::span<const Bytes> outputs, const Factors& factors,
                const Workspace& workspace, const MemoryPlacement* placement = nullptr);
  Request start_parts(Comm& comm, std::span<const ConstStridedParts> inputs, std::span<const StridedParts> outputs,
                      const Factors& factors, const Workspace& workspace);

  /// This rank's placement, with the leading dimensions of the options.
  static MemoryPlacement placement_of(std::span<const LayoutPair> pairs, const RedistributionOptions& options,
                                      int rank);

 private:
  PlannedRedistribution(std::vector<LayoutPair> pairs, const RedistributionOptions& options)
      : pairs_(std::move(pairs)), options_(options) {}

  /// The plan for a placement. The most recent ones are cached.
  std::shared_ptr<LocalRedistribution> local_for(const MemoryPlacement& placement, const Team& team);
  Arithmetic arithmetic(const Factors& factors) const;
  void check_count(std::size_t inputs, std::size_t outputs) const;
  /// The part of the workspace that the plan uses. Throws Error(invalid_argument) if it is too small.
  Bytes scratch_in(const Workspace& workspace, const Team& team);
  /// Throws Error(invalid_argument) for wrong memory. Returns of what inputs and outputs consist: empty if they are one
  /// dense pair.
  std::vector<ConstBytes> check(const LocalRedistribution& local, std::span<const ConstBytes> inputs,
                                std::span<const Bytes> outputs, const Workspace& workspace) const;

  std::vector<LayoutPair> pairs_;
  RedistributionOptions options_;
  std::vector<Relabeling> relabelings_;
  std::uint64_t signature_ = 0;
  std::uint64_t layouts_bytes_ = 0;
  std::shared_ptr<LocalRedistribution> planned_;
  std::mutex mutex_;
  std::list<std::shared_ptr<LocalRedistribution>> placed_;  ///< most recent first
  std::optional<std::uint64_t> workspace_bytes_;
};

}  // namespace penstock::arrays
