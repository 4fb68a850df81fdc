// The receiver's side of long messages inside a node: it reads the sender's memory, one copy.
#pragma once

#include <vector>

#include "engine/core.hpp"

namespace penstock::engine {

/// Reads the memory of peers on threads that do not hold the engine's lock. Routes owns it.
class PeerReads final : public Mechanism, private Worker {
 public:
  explicit PeerReads(Core& core) : core_(core) {}

  /// The data that `header` describes can be read from the sender's memory.
  void post(Operation& operation, StepId step, const Header& header) {
    core_.add_work(operation.step(step).lane,
                   {.operation = &operation, .step = step, .worker = this, .message = header.message});
  }

  void cancel(Operation& operation) override {
    std::erase_if(refused_, [&](const Refused& each) { return each.operation == &operation; });
  }
  void waits_for(const Operation& operation, std::vector<int>& peers) const override {
    for (const Refused& each : refused_)
      if (each.operation == &operation) peers.push_back(each.peer);
  }

 private:
  struct Refused {
    Operation* operation;
    int peer;
  };

  bool run(const Work& work) override;
  void finish(const Work& work, bool was_valid) override;

  Core& core_;
  std::vector<Refused> refused_;  ///< reads whose senders have failed; their notices are on their way
};

}  // namespace penstock::engine
