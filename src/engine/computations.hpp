// Runs the steps that combine, transform and copy memory that this process has mapped.
#pragma once

#include "engine/core.hpp"
#include "host/distance.hpp"

namespace penstock::engine {

/// Runs short steps at once, and long ones on a thread without the engine's lock. Routes owns it.
class Computations final : public Mechanism, private Worker {
 public:
  explicit Computations(Core& core) : core_(core) {}

  /// Runs a step that is ready, or queues it for a thread without the lock.
  void post(Operation& operation, StepId step, ConstBytes from);
  /// Runs the step. Touches only the step's memory, so it needs no lock.
  void compute(const Operation& operation, StepId step, ConstBytes from);

  void cancel(Operation&) override {}
  void waits_for(const Operation&, std::vector<int>&) const override {}  // they wait for other steps only

 private:
  bool run(const Work& work) override;
  void finish(const Work& work, bool) override { core_.complete(*work.operation, work.step); }
  /// Whether to write `to` by non-temporal stores.
  bool streams(const Operation& operation, const Step& step, Bytes to);

  Core& core_;
  host::Distance distance_;  ///< of the readers of this rank's shared memory
};

}  // namespace penstock::engine
