// The real executor: runs the plans of one communicator over shared memory and the transport.
#pragma once

#include <memory>
#include <string>

#include "engine/polled_engine.hpp"

namespace penstock::engine {

/// The engine as callers see it. Its public members take the lock.
class Executor final : public Engine, public PolledEngine, public std::enable_shared_from_this<Executor> {
 public:
  Executor(std::shared_ptr<Transport> by, const EngineOptions& given, Node on);
  ~Executor() override;

  const Team& team() const override { return node.team; }
  std::uint64_t shared_limit_bytes() const override { return node.shared_limit_bytes; }
  std::shared_ptr<Run> start(std::shared_ptr<const Plan> plan, const Bindings& bindings, const Arithmetic& arithmetic,
                             std::uint64_t signature) override;
  void run(const std::shared_ptr<const Plan>& plan, const Bindings& bindings, const Arithmetic& arithmetic,
           std::uint64_t signature) override;
  void fail_next(const std::string& message) noexcept override;
  using PolledEngine::progress;
  void progress() noexcept override { Progress::of_process().drive(*this); }
  void set_timeout(std::chrono::milliseconds timeout) noexcept override;
  std::string report() const override;
  /// Blocking calls that have begun on the fast path between nodes: tests see that they have.
  std::uint64_t short_calls();
  void enter() noexcept override {
    has_entered_ = true;
    transport->enter();
  }

  /// The caller's Run is destroyed after the operation has finished. Never waits for the lock.
  void drop(Operation& operation) noexcept { lock_.drop(operation); }
  /// The same with the lock.
  void drop_locked(Operation& operation) { operations.drop(operation); }

 private:
  /// What the caller does after the start.
  enum class Then : std::uint8_t { wait, go_on };
  /// Before the lock: it may take a while.
  void use_huge_pages(const Bindings& bindings) const;
  Operation& next_operation();
  void start_next(Operation& started, std::shared_ptr<const Plan>&& plan, const Bindings& bindings,
                  const Arithmetic& arithmetic, std::uint64_t signature);
  /// After an operation that has completed at once. Unlocks.
  void after_run(Locked& lock);
  /// Whether the next messages for it come from the transport.
  bool polls_at_once(const Operation& started) const {
    return has_remote && started.call.compiled != nullptr && started.call.compiled->leaves_node() &&
           started.call.compiled->tasks().count() == 0 && !Progress::sleeps_in_wait();
  }
  /// Polls while it holds the lock. True if the operation has completed.
  bool poll_at_once(Operation& started, int polls);
  /// Unlocks.
  void after_start(Locked& lock, Operation& started, Then then);
  void prepare(Operation& operation, std::shared_ptr<const Plan>&& plan);

  bool has_entered_ = false;
  PlanCache plans_;
  const std::uint32_t plan_tags_ = TagSplit(node.max_tag).plan_tags();
  std::uint32_t polled_at_once_ = 0;  ///< runs that have completed so
};

}  // namespace penstock::engine
