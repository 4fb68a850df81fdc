// The tasks of plans (Plan::tasks): ranks publish them in the node's TaskTable, and any thread of the node runs them.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "engine/core.hpp"
#include "engine/task_table.hpp"

namespace penstock::engine {

/// Publishes this rank's task groups and runs tasks of all ranks of the node. Routes owns it.
class SharedTasks final : public Mechanism {
 public:
  explicit SharedTasks(Core& core)
      : core_(core), task_table_(core.node.segment->task_table(), core.node.segment->layout().ranks) {}

  /// Before the first publish_tasks step of the operation. Throws Error(no_space).
  void reserve(const Operation& operation) {
    if (tasks_of(operation).count() > 0) core_.node.segment->commit_task_table();
  }
  /// Starts a publish_tasks step.
  void post(Operation& operation, StepId step);
  /// Runs one task of any operation, if one is ready. False if none is.
  bool run(Locked& lock);
  /// Runs one of the tasks that the operation needs first (CompiledTasks::front), even if the task touches the memory
  /// of other ranks only. False if none is ready.
  bool run_front(Operation& operation, Locked& lock);

  bool poll() override;
  bool has_work(Caller caller) const override;
  bool needs_polling(Caller caller) const override;
  bool is_idle() const override { return published_.empty(); }
  void begin(Operation& operation) override;
  void end(Operation& operation) override {
    if (operation.pins > 0) leave(operation);
  }
  bool is_touched(const Operation& operation) const override;
  void cancel(Operation& operation) override;
  void waits_for(const Operation& operation, std::vector<int>& peers) const override;
  bool has_heard(const Operation& operation, int peer) const override;

 private:
  struct State {
    bool is_published = false;         ///< it is in published_, which keeps it in the window
    std::uint64_t entered_groups = 0;  ///< bits: task groups that this rank has published
    std::uint64_t open_groups = 0;     ///< bits: those of them that are not complete
    std::uint32_t scan_from = 0;       ///< all tasks before it are claimed
    /// By Caller: TaskTable::version() + 1 when no task could be claimed last.
    std::array<std::uint64_t, 2> scanned{};
  };
  struct Publication {
    Operation* operation;
    StepId step;
  };

  std::uint32_t ranks() const { return static_cast<std::uint32_t>(core_.node.ranks.size()); }
  const CompiledTasks& tasks_of(const Operation& operation) const { return operation.call.compiled->tasks(); }
  TaskTable::Entry& entry(const Operation& operation, std::uint32_t local_rank) const {
    return task_table_.entry(operation.sequence, local_rank);
  }
  bool slot_is_free(const Operation& operation) const {
    return operation.sequence < TaskTable::kSlots || core_.completed_by_all() > operation.sequence - TaskTable::kSlots;
  }
  void enter(Operation& operation, StepId step);
  bool leave(Operation& operation);
  bool is_serving(const Operation& operation) const;
  bool is_ready(const Operation& operation, std::uint32_t task) const;
  std::optional<std::uint32_t> find_task(const Operation& operation, Caller caller) const;
  bool claim(const Operation& operation, std::uint32_t task);
  void run_task(Operation& operation, std::uint32_t task, Locked& lock);
  void move_data(const Operation& operation, std::uint32_t task, Caller caller) const;
  void finish_task(const Operation& operation, std::uint32_t task);
  void wake_for(const Operation& operation, std::uint32_t task, std::uint32_t turn);

  Core& core_;
  TaskTable task_table_;
  PerOperation<State> states_;
  std::vector<Publication> deferred_;  ///< wait until their slot of the task table is free
  std::vector<Operation*> published_;  ///< may still have tasks to run; in the order of their start
};

}  // namespace penstock::engine
