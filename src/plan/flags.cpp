#include "plan/flags.hpp"

#include "plan/order.hpp"

namespace penstock::plan {
namespace {

bool is_allowed(StepKind kind) {
  switch (kind) {
    case StepKind::copy:
    case StepKind::reduce:
    case StepKind::fold:
    case StepKind::expose:
    case StepKind::await:
    case StepKind::read: return true;
    default: return false;
  }
}

}  // namespace

std::string broken_promise_of_flags(const Plan& plan) {
  if (!plan.by_flags) return {};
  if (!plan.tasks.empty()) return "it has shared tasks";
  if (plan.shared_bytes > kFlaggedBytes)
    return "it shows " + std::to_string(plan.shared_bytes) + " bytes, at most " + std::to_string(kFlaggedBytes) +
           " have room";
  const Order order(plan);
  StepId end_of_awaits = 0;
  bool awaits = false;
  for (StepId id = 0; id < plan.steps.size(); ++id)
    if (plan.steps[id].kind == StepKind::await) end_of_awaits = id + 1;
  for (StepId id = 0; id < plan.steps.size(); ++id) {
    const Step& step = plan.steps[id];
    const std::string which = "step " + std::to_string(id) + " ";
    if (!is_allowed(step.kind)) return which + "is none of a short exchange";
    if (step.tag != 0) return which + "has a tag";
    awaits = awaits || step.kind == StepKind::await;
    if (awaits && step.kind == StepKind::expose) return which + "shows something after an await, as the flag does not";
    if (!touches(step.kind).writes) continue;
    if (step.to.buffer != Buffer::shared) {
      if (id < end_of_awaits) return which + "writes before all that is awaited has come";
      continue;
    }
    for (StepId other = 0; other < plan.steps.size(); ++other)
      if (plan.steps[other].kind == StepKind::expose && !order.is_before(id, other))
        return which + "writes what may have been shown";
  }
  return {};
}

}  // namespace penstock::plan
