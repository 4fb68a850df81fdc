#include "plan/flags.hpp"

#include "plan/order.hpp"

namespace penstock::plan {
namespace {

bool is_allowed(const Step& step) {
  if (step.kind == StepKind::compute) return !takes_message(step) && !has_blocks(step);
  return step.kind == StepKind::signal || step.kind == StepKind::wait;
}

}  // namespace

std::string violated_flag_rule(const Plan& plan) {
  if (!plan.by_flags) return {};
  if (!plan.tasks.empty()) return "it has shared tasks";
  if (plan.shared_bytes > kFlaggedBytes)
    return "it publishes " + std::to_string(plan.shared_bytes) + " bytes, more than the " +
           std::to_string(kFlaggedBytes) + " that fit beside a flag";
  const Order order(plan);
  StepId end_of_waits = 0;
  bool waits = false;
  for (StepId id = 0; id < plan.steps.size(); ++id)
    if (plan.steps[id].kind == StepKind::wait) end_of_waits = id + 1;
  for (StepId id = 0; id < plan.steps.size(); ++id) {
    const Step& step = plan.steps[id];
    const std::string which = "step " + std::to_string(id) + " ";
    if (!is_allowed(step)) return which + "is of a kind that a short exchange does not have";
    if (step.tag != 0) return which + "has a tag";
    waits = waits || step.kind == StepKind::wait;
    if (waits && step.kind == StepKind::signal)
      return which + "publishes data after a wait, but the flag publishes all data at once";
    if (!touches(step).writes) continue;
    if (step.to.buffer != Buffer::shared) {
      if (id < end_of_waits) return which + "writes before all waits are complete";
      continue;
    }
    for (StepId other = 0; other < plan.steps.size(); ++other)
      if (plan.steps[other].kind == StepKind::signal && !order.is_before(id, other))
        return which + "writes shared memory that may already be published";
  }
  return {};
}

}  // namespace penstock::plan
