// The caller's handle of an operation.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "engine/executor.hpp"

namespace penstock::engine {

class OperationRun final : public Run {
 public:
  /// With the lock. `kept`: the executor, unless the caller keeps it.
  OperationRun(Executor& executor, Operation& operation, std::shared_ptr<Executor> kept)
      : kept_(std::move(kept)), executor_(executor), operation_(operation) {
    ++operation.owners;
  }

  ~OperationRun() override {
    if (is_dropped_ || Progress::in_forked_child()) return;
    Progress::of_process().wait_for(executor_, operation_.finished);
    executor_.drop(operation_);
  }

  /// The last call, of a caller that has the lock. The operation has finished.
  void drop_locked() {
    is_dropped_ = true;
    executor_.drop_locked(operation_);
  }

  bool test() override {
    Progress::require_own_process();
    if (!done()) Progress::of_process().drive(executor_);
    if (!done()) return false;
    deliver();
    return true;
  }

  void wait() override {
    Progress::require_own_process();
    Progress::of_process().wait_for(executor_, operation_.finished);
    deliver();
  }

  bool done() const noexcept override { return operation_.finished.load(std::memory_order_acquire); }

 private:
  void deliver() {
    if (!operation_.error || delivered_.exchange(true)) return;
    // The caller may not call again, and its peers wait for the notice.
    executor_.progress(Caller::application);
    throw *operation_.error;
  }

  const std::shared_ptr<Executor> kept_;
  Executor& executor_;
  Operation& operation_;
  bool is_dropped_ = false;
  std::atomic<bool> delivered_{false};
};

}  // namespace penstock::engine
