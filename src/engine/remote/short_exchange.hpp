// Runs plans of a few short messages between nodes within one call: the fast path.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <vector>

#include "engine/remote/step_messages.hpp"
#include "engine/waiting.hpp"
#include "host/yielding.hpp"

namespace penstock::engine {

/// Such a plan has CompiledPlan::short_exchange(). While it runs, the operation has its record, but has not been
/// started: no mechanism but StepMessages knows it. This saves most of what a short call costs above its messages.
///
/// run() may stop after any step, and the operation then goes on as any other (Core::launch_rest). Invariant: a step in
/// has_run() is complete. Of a step in is_posted() StepMessages and InFlight know that its message is posted, and its
/// completion is still to come or in left_over(). No other step has begun, but for one that has thrown(). Who goes on
/// holds the operation for each posted message.
///
/// The engine's lock protects it, and run() does not give it up.
class ShortExchange {
 public:
  ShortExchange(Core& core, InFlight& in_flight, StepMessages& steps)
      : core_(core), in_flight_(in_flight), steps_(steps) {}

  /// Whether all steps are complete. `compute` runs a computing step. `polls`: how many it may make; then how many are
  /// left.
  template <typename Compute>
  bool run(Operation& operation, int& polls, Compute compute);

  std::uint32_t has_run() const { return has_run_; }
  std::uint32_t is_posted() const { return is_posted_; }
  /// What the transport has reported, and will not again.
  std::span<const Transport::Completion> left_over() const { return std::span(complete_).subspan(looked_at_); }
  /// What a step or the transport threw, or nullptr.
  const std::exception_ptr& thrown() const { return thrown_; }
  bool has_poll_thrown() const { return is_polling_; }
  /// How often run() was called: tests see that a call has taken this path.
  std::uint64_t runs() const { return runs_; }

 private:
  static constexpr std::uint32_t kLook = 64;  ///< polls after which the general path looks for packets

  /// Begins the steps that are ready. False if one cannot be posted now.
  template <typename Compute>
  bool begin_ready(Operation& operation, Compute compute);
  bool take_complete(const Operation& operation);
  /// For the first message that is posted: others seldom make a step ready before it has come, and to ask for one is
  /// cheaper.
  bool poll();

  Core& core_;
  InFlight& in_flight_;
  StepMessages& steps_;
  std::uint32_t has_run_ = 0;                  ///< bits, by step
  std::uint32_t is_posted_ = 0;                ///< bits, by step
  std::array<Transport::Token, 32> tokens_{};  ///< by step, of those that are posted
  std::vector<Transport::Completion> complete_;
  std::size_t looked_at_ = 0;  ///< so many of them
  bool is_polling_ = false;
  std::exception_ptr thrown_;
  std::uint32_t polls_ = 0;
  std::uint64_t runs_ = 0;
};

template <typename Compute>
bool ShortExchange::run(Operation& operation, int& polls, Compute compute) {
  const std::size_t steps = operation.call.compiled->short_exchange().size();
  const std::uint32_t all = ~std::uint32_t{0} >> (32 - steps);
  ++runs_;
  has_run_ = is_posted_ = 0;
  is_polling_ = false;
  thrown_ = nullptr;
  complete_.clear();
  looked_at_ = 0;
  try {
    const Bytes scratch = operation.call.bindings.scratch;
    operation.scratch = scratch.empty() ? core_.buffers.take(operation.plan().scratch_bytes) : scratch.data();
    operation.waiting_for.reserve(steps);
    steps_.begin(operation);
    Waiting waiting;
    host::Yields& yields = host::yields_of_this_thread();
    const bool are_late = yields.are_late();
    // The ranks that have this core in turns have something to send as well. If they do so first, the poll finds more.
    const bool yields_first = yields.is_core_shared() && !are_late && !yields.are_futile();
    const auto yield = [&] {
      if (!core_.transport->yielded()) host::yield(yields);
    };
    for (;; --polls) {
      if (!begin_ready(operation, compute)) return false;
      if (has_run_ == all) return true;
      if (polls == 0 || ++polls_ % kLook == 0) return false;
      if (yields_first) yield();
      if (poll()) {
        if (!take_complete(operation)) return false;
        waiting.moved();
      } else if (const Pause next = waiting.next({.polls_transport = true, .is_crowded = core_.shares_cores});
                 next == Pause::sleep) {
        return false;
      } else if (next == Pause::yield && !yields_first) {
        yield();
      }
    }
  } catch (...) {
    thrown_ = std::current_exception();
    return false;
  }
}

template <typename Compute>
bool ShortExchange::begin_ready(Operation& operation, Compute compute) {
  const std::span<const std::uint32_t> waits_for = operation.call.compiled->short_exchange();
  const std::uint32_t all = ~std::uint32_t{0} >> (32 - waits_for.size());
  for (std::uint32_t left = all & ~(has_run_ | is_posted_); left != 0; left &= left - 1) {
    const auto id = static_cast<StepId>(std::countr_zero(left));
    if ((waits_for[id] & ~has_run_) != 0) continue;
    const Step& step = operation.step(id);
    if (step.kind == StepKind::compute) {
      compute(operation, id);
    } else {
      if (!steps_.can_post(operation, step)) return false;
      if (const std::optional<Transport::Token> token = steps_.post_unheld(operation, id)) {
        tokens_[id] = *token;
        is_posted_ |= 1U << id;
        continue;
      }
    }
    has_run_ |= 1U << id;
  }
  return true;
}

}  // namespace penstock::engine
