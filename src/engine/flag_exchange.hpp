// Plans of one short exchange inside a node (Plan::by_flags): by flags in shared memory in place of messages, and,
// where nothing else is in flight, in one go.
#pragma once

#include <utility>
#include <vector>

#include "engine/compiled_plan.hpp"
#include "engine/core.hpp"
#include "engine/flags.hpp"

namespace penstock::engine {

class FlagExchange final : public Mechanism {
 public:
  explicit FlagExchange(Core& core);

  /// Whether it may be launched now; otherwise it is launched as soon as its flag is free.
  bool admit(Operation& operation);
  /// A signal or wait step.
  void post(Operation& operation, StepId step);
  /// The memory of the peer that a step of the operation reads.
  ConstBytes of_peer(const Operation& operation, const Step& step) const;
  /// What the step writes was shown already, when the operation was tried in one go.
  bool is_published(const Operation& operation, const Step& step) const {
    return step.to.buffer == Buffer::shared && states_[operation].is_published;
  }
  /// The peer has completed the operation: a step that still waits for it, or kNone.
  StepId find_missing(const Operation& operation, int peer) const;

  /// Tries the next operation in one go. False: it has not begun. `compute` does a step of an operation.
  template <typename Compute>
  bool run_fast_path(const std::shared_ptr<const Plan>& plan, const Bindings& bindings, const Arithmetic& arithmetic,
                     std::uint64_t signature, PlanCache& plans, Compute compute);

  bool receive();  ///< true when a flag was awaited that is shown
  bool poll() override { return !flagged_.empty() && poll_flagged(); }
  bool has_work(Caller) const override;
  bool needs_polling(Caller) const override { return !deferred_.empty(); }
  void begin(Operation& operation) override;
  void end(Operation& operation) override {
    if (!flagged_.empty()) std::erase(flagged_, &operation);
    flags_.release_before(flagged_.empty() ? core_.operations.next() : flagged_.front()->sequence);
  }
  void cancel(Operation& operation) override;
  void waits_for(const Operation& operation, std::vector<int>& peers) const override;

 private:
  struct State {
    bool is_published = false;
    std::vector<StepId> waiting;
  };

  bool poll_flagged();
  bool take_flag(Operation& operation);
  void publish(const Operation& operation, const Step& step);
  bool has_published(const Operation& operation, const Step& step) const {
    return flags_.has_published(core_.local(step.peer), operation.sequence);
  }
  bool try_wait(const Step& step) const;
  StepId find_published(const Operation& operation) const;

  Core& core_;
  Flags flags_;
  const int looks_;                  ///< at a flag, before the operation is started as others are
  std::vector<Operation*> flagged_;  ///< not over, in the order of their start
  Fifo<Operation*> deferred_;        ///< of these, the ones that wait for a flag
  PerOperation<State> states_;
  Operation fast_{~std::uint32_t{0}};  ///< what run_fast_path() runs
  std::uint64_t published_for_ = 0;    ///< sequence + 1 of what it has shown for, and then left to start()
};

template <typename Compute>
bool FlagExchange::run_fast_path(const std::shared_ptr<const Plan>& plan, const Bindings& bindings,
                                 const Arithmetic& arithmetic, std::uint64_t signature, PlanCache& plans,
                                 Compute compute) {
  const std::uint64_t sequence = core_.operations.next();
  if (!core_.operations.is_empty() || core_.detector.knows_of_any() ||
      !flags_.is_free(sequence, core_.detector.gone()) || bindings.input.size() < plan->input_bytes ||
      bindings.output.size() < plan->output_bytes)
    return false;
  core_.caller = Caller::application;
  Call& call = fast_.call;
  if (call.plan != plan) {
    try {
      flags_.take();
      call.compiled = plans.get(plan, core_.node.team, core_.node.shared_limit_bytes);
    } catch (const std::exception&) {
      return false;  // as below
    }
    call.plan = plan;
  }
  call.bindings = bindings;
  call.arithmetic = arithmetic;
  call.signature = signature;
  fast_.sequence = sequence;
  fast_.shared = flags_.of(core_.self(), sequence).data;
  fast_.scratch = bindings.scratch.empty() ? core_.buffers.take(plan->scratch_bytes) : bindings.scratch.data();
  bool is_over = true;
  try {
    // The order of the steps is a legal one.
    for (StepId id = 0; id < plan->steps.size() && is_over; ++id) {
      const Step& step = plan->steps[id];
      if (step.kind == StepKind::signal)
        publish(fast_, step);
      else if (step.kind == StepKind::wait)
        is_over = try_wait(step);
      else
        compute(fast_, id);
    }
  } catch (const std::exception&) {
    is_over = false;  // start() fails by it, too, and tells all
  }
  if (bindings.scratch.empty()) core_.buffers.give_back(fast_.scratch, plan->scratch_bytes);
  if (!is_over) {
    published_for_ = sequence + 1;
    return false;
  }
  core_.operations.run_through(signature);
  flags_.release_before(sequence + 1);
  return true;
}

}  // namespace penstock::engine
