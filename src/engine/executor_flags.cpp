// Plans of one short exchange inside a node (Plan::by_flags): by flags in shared memory in place of messages, and,
// where nothing else is in flight, in one go.
#include <algorithm>
#include <utility>

#include "engine/executor.hpp"
#include "engine/pause.hpp"
#include "penstock/trace.hpp"

namespace penstock::engine {
namespace {

constexpr int kLooks = 200;        // some microseconds: longer than the others need where each rank has a core
constexpr int kLooksInCrowd = 20;  // where the others need this core to come

}  // namespace

void Executor::run(std::shared_ptr<const Plan> plan, const Bindings& bindings, const Arithmetic& arithmetic,
                   std::uint64_t signature) {
  if (plan->by_flags && run_at_once(plan, bindings, arithmetic, signature)) return;
  start(std::move(plan), bindings, arithmetic, signature)->wait();
}

// False: the operation has not begun. It may have been shown; start() then does not show it again.
bool Executor::run_at_once(const std::shared_ptr<const Plan>& plan, const Bindings& bindings,
                           const Arithmetic& arithmetic, std::uint64_t signature) {
  // An operation of the user's must not run under the lock.
  if (!flags_ || arithmetic.user || trace::enabled() || Progress::in_forked_child()) return false;
  const std::lock_guard lock(mutex_);
  if (!window_.empty() || !flags_->is_free(next_sequence_, gone_)) return false;
  if (bindings.input.size() < plan->input_bytes || bindings.output.size() < plan->output_bytes) return false;
  caller_ = Caller::application;
  if (at_once_.plan != plan) {
    try {
      at_once_.compiled = plans_.get(plan, node_.team, node_.shared_limit_bytes);
    } catch (const std::exception&) {
      return false;  // as below
    }
    at_once_.plan = plan;
  }
  at_once_.sequence = next_sequence_;
  at_once_.signature = signature;
  at_once_.bindings = bindings;
  at_once_.arithmetic = arithmetic;
  at_once_.shared = flags_->of(self(), next_sequence_).data;
  at_once_.scratch = bindings.scratch.empty() ? buffers_.take(plan->scratch_bytes) : bindings.scratch.data();
  bool is_over = false;
  try {
    is_over = run_steps_at_once();
  } catch (const std::exception&) {
    // start() fails by it, too, and tells all.
  }
  if (bindings.scratch.empty()) buffers_.give_back(at_once_.scratch, plan->scratch_bytes);
  if (!is_over) {
    shown_for_ = next_sequence_ + 1;
    return false;
  }
  history_[next_sequence_ % history_.size()] = {next_sequence_, signature, false};
  base_sequence_ = ++next_sequence_;
  node_.segment->slot(self()).completed_before.store(base_sequence_, std::memory_order_release);
  flags_->publish(next_sequence_);
  return true;
}

// The order of the steps is a legal one.
bool Executor::run_steps_at_once() {
  const std::vector<Step>& steps = at_once_.plan->steps;
  for (StepId id = 0; id < steps.size(); ++id) {
    const Step& step = steps[id];
    if (step.kind == StepKind::expose)
      show(at_once_, step);
    else if (step.kind != StepKind::await)
      compute(at_once_, id);
    else if (!await_at_once(step))
      return false;
  }
  return true;
}

bool Executor::await_at_once(const Step& step) const {
  const std::uint32_t peer = local(step.peer);
  for (int look = is_crowded_ ? kLooksInCrowd : kLooks; look > 0; --look) {
    if (flags_->has_shown(peer, at_once_.sequence))
      return flags_->of(peer, at_once_.sequence).signature == at_once_.signature;
    pause();
  }
  return false;
}

void Executor::show(const Operation& operation, const Step& step) {
  flags_->show(operation.sequence, operation.signature);
  node_.segment->slot(local(step.peer)).bell.ring();
}

/// An await that is over, and does not know it yet.
StepId Executor::find_shown(const Operation& operation) const {
  if (!operation.running || operation.failed) return CompiledPlan::kNone;
  for (StepId step = 0; step < operation.plan->steps.size(); ++step) {
    const Step& what = operation.plan->steps[step];
    if (what.kind == StepKind::await &&
        (operation.flags[step] & (Operation::posted | Operation::matched)) == Operation::posted &&
        flags_->has_shown(local(what.peer), operation.sequence))
      return step;
  }
  return CompiledPlan::kNone;
}

bool Executor::poll_flags() {
  for (Operation* const operation : flagged_) {
    const StepId step = find_shown(*operation);
    if (step == CompiledPlan::kNone) continue;
    const int peer = operation->plan->steps[step].peer;
    operation->flags[step] |= Operation::matched;
    if (flags_->of(local(peer), operation->sequence).signature != operation->signature) {
      Header header = header_for(*operation, MessageKind::expose);
      header.source = static_cast<std::uint32_t>(peer);
      fail_mismatch(*operation, header, "they called different operations, or with different arguments");
    } else {
      complete(*operation, step);
      drain_ready();
    }
    return true;  // it may have left flagged_
  }
  return false;
}

void Executor::leave_flags(Operation& operation) {
  if (!flags_) return;
  if (std::exchange(operation.by_flags, false)) std::erase(flagged_, &operation);
  flags_->publish(flagged_.empty() ? next_sequence_ : flagged_.front()->sequence);
}

// Operations that are held wait for ranks to have read what was shown before.
void Executor::give_up_the_dead() {
  if (std::ranges::none_of(flagged_, [](const Operation* each) { return !each->running && !each->failed; })) return;
  for (std::uint32_t rank = 0; rank < node_.ranks.size(); ++rank)
    if (!gone_[rank] && !node_.segment->is_alive(rank)) give_up(rank);
}

}  // namespace penstock::engine
