// Runs plans of short exchanges inside a node (Plan::by_flags) by flags in shared memory instead of messages. If
// nothing else is in flight, the fast path runs the whole plan in one call.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "engine/compiled_plan.hpp"
#include "engine/core.hpp"
#include "engine/flags.hpp"

namespace penstock::engine {

/// Runs signal and wait steps of such plans. Routes owns it. The engine's lock protects all calls.
class FlagExchange final : public Mechanism {
 public:
  explicit FlagExchange(Core& core) : core_(core), flags_(*core.node.segment) {}

  /// Whether the operation may be launched now. If not, it is deferred until its flag is free.
  bool admit(Operation& operation);
  /// Starts a signal or wait step.
  void post(Operation& operation, StepId step);
  /// The peer's memory that the step reads.
  ConstBytes of_peer(const Operation& operation, const Step& step) const;
  /// Whether the fast path has already published what the step writes.
  bool is_published(const Operation& operation, StepId step) const {
    return operation.step(step).to.buffer == Buffer::shared && step < states_[operation].published_before;
  }
  /// See Core::differing_lengths().
  std::string differing_lengths(const Operation& operation, int peer) const;
  /// For a peer that has completed the operation: a step that still waits for this peer, or kNone.
  StepId find_missing(const Operation& operation, int peer) const;

  /// The fast path: tries to run the next operation within this call. False: start() must run it; it may have been
  /// published. `compute` runs a computing step.
  template <typename Compute>
  bool run_fast_path(const std::shared_ptr<const Plan>& plan, const Bindings& bindings, const Arithmetic& arithmetic,
                     std::uint64_t signature, PlanCache& plans, Compute compute);

  bool receive();  ///< completes waits whose flags are published; true if there were any
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
    StepId published_before = 0;  ///< the fast path has published what earlier steps write
    std::vector<StepId> waiting;
  };

  static constexpr std::size_t kFastPlans = 8;

  std::unique_ptr<Operation>& fast_operation(const Plan* plan) {
    return fast_[base::mix(base::kSeed, reinterpret_cast<std::uintptr_t>(plan)) % kFastPlans];
  }
  bool poll_flagged();
  bool take_flag(Operation& operation);
  void publish(const Operation& operation, const Step& step);
  bool has_published(const Operation& operation, const Step& step) const {
    return flags_.has_published(core_.local(step.peer), operation.sequence, step.tag);
  }
  bool try_wait(const Operation& operation, const Step& step) const;
  /// The flag is published.
  std::uint64_t told_by_peer(const Operation& operation, const Step& wait) const;
  StepId find_published(const Operation& operation) const;

  Core& core_;
  Flags flags_;
  std::vector<Operation*> flagged_;  ///< operations that use flags and are not over, in the order of their start
  Fifo<Operation*> deferred_;        ///< those of them that wait for a free flag
  PerOperation<State> states_;
  /// The operations of the fast path: each has a plan that ran lately, since programs alternate between a few. Made
  /// when they are needed.
  std::array<std::unique_ptr<Operation>, kFastPlans> fast_;
  std::uint64_t published_for_ = 0;  ///< sequence + 1 of the operation that the fast path began and left to start()
  StepId published_before_ = 0;      ///< its State::published_before
};

template <typename Compute>
bool FlagExchange::run_fast_path(const std::shared_ptr<const Plan>& plan, const Bindings& bindings,
                                 const Arithmetic& arithmetic, std::uint64_t signature, PlanCache& plans,
                                 Compute compute) {
  const std::uint64_t sequence = core_.operations.next();
  if (!core_.operations.is_empty() || !core_.operations.can_run_through() || core_.detector.knows_of_any() ||
      !flags_.is_free(sequence) || bindings.input.size() < plan->input_bytes ||
      bindings.output.size() < plan->output_bytes)
    return false;
  core_.caller = Caller::application;
  std::unique_ptr<Operation>& kept = fast_operation(plan.get());
  if (kept == nullptr || kept->call.plan != plan) {
    try {
      if (kept == nullptr) kept = std::make_unique<Operation>(~std::uint32_t{0});
      const CompiledPlan* const compiled = plans.get(plan, core_.node.team, core_.node.shared_limit_bytes);
      flags_.take(compiled->published_bytes());
      kept->call.compiled = compiled;
    } catch (const std::exception&) {
      return false;  // start() fails the same way, and tells all ranks
    }
    kept->call.plan = plan;
  }
  Operation& fast = *kept;
  Call& call = fast.call;
  // A rank that neither tells nor waits would never learn that another one has gone.
  if (call.compiled->has_messages() || !(call.compiled->takes_from_node() || call.compiled->published_bytes() > 0))
    return false;
  call.bindings = bindings;
  call.arithmetic = arithmetic;
  call.signature = signature;
  fast.sequence = sequence;
  fast.shared = flags_.own_data(sequence, call.compiled->published_bytes());
  fast.scratch = bindings.scratch.empty() ? core_.buffers.take(plan->scratch_bytes) : bindings.scratch.data();
  bool is_over = true;
  published_before_ = 0;
  try {
    // The order of a plan's steps is a legal order.
    for (StepId id = 0; id < plan->steps.size() && is_over; ++id) {
      const Step& step = plan->steps[id];
      if (step.kind == StepKind::signal) {
        publish(fast, step);
        published_before_ = id;
      } else if (step.kind == StepKind::wait) {
        is_over = try_wait(fast, step);
      } else {
        compute(fast, id);
      }
    }
  } catch (const std::exception&) {
    is_over = false;  // start() fails the same way, and tells all ranks
  }
  if (bindings.scratch.empty()) core_.buffers.give_back(fast.scratch, plan->scratch_bytes);
  if (!is_over) {
    published_for_ = sequence + 1;
    return false;
  }
  core_.operations.run_through(signature);
  flags_.release_before(sequence + 1);
  return true;
}

}  // namespace penstock::engine
