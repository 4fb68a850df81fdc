// Steps that combine and copy memory that this process has mapped.
#pragma once

#include "engine/core.hpp"
#include "engine/distance.hpp"

namespace penstock::engine {

class Computations final : public Mechanism, private Worker {
 public:
  explicit Computations(Core& core) : core_(core) {}

  void post(Operation& operation, StepId step, ConstBytes from);
  /// With or without the lock: touches nothing but the step's memory.
  void compute(const Operation& operation, StepId step, ConstBytes from);

  void cancel(Operation&) override {}
  void waits_for(const Operation&, std::vector<int>&) const override {}  // each waits for other steps alone

 private:
  bool run(const Work& work) override;
  void finish(const Work& work, bool) override { core_.complete(*work.operation, work.step); }
  bool streams(const Operation& operation, const Step& step, Bytes to);

  Core& core_;
  Distance distance_;  ///< of those who read this rank's shared memory
};

}  // namespace penstock::engine
