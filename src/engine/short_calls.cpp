#include "engine/short_calls.hpp"

#include <exception>

#include "penstock/trace.hpp"

namespace penstock::engine {

bool ShortCalls::can_run_short(const Plan& plan, const Bindings& bindings, const Arithmetic& arithmetic) {
  // A user operation must not run under the lock.
  return has_remote && node.segment == nullptr && operations.is_empty() && the<RemoteMessages>().may_run_short() &&
         !arithmetic.user && !trace::enabled() && bindings.input.size() >= plan.input_bytes &&
         bindings.output.size() >= plan.output_bytes &&
         (bindings.scratch.empty() || bindings.scratch.size() >= plan.scratch_bytes);
}

const CompiledPlan* ShortCalls::find_short_plan(PlanCache& plans, std::uint32_t plan_tags,
                                                const std::shared_ptr<const Plan>& plan) const {
  try {
    const CompiledPlan* const compiled = plans.get(plan, node.team, node.shared_limit_bytes, plan_tags);
    return compiled->short_exchange().empty() ? nullptr : compiled;
  } catch (const std::exception&) {
    return nullptr;  // the general path fails the same way, and tells all ranks
  }
}

bool ShortCalls::run_short(Operation& next, const CompiledPlan& compiled, const std::shared_ptr<const Plan>& plan,
                           const Bindings& bindings, const Arithmetic& arithmetic, std::uint64_t signature,
                           int& polls) {
  Call& call = next.call;
  call.plan = std::shared_ptr<const Plan>(std::shared_ptr<const Plan>(), plan.get());  // the caller keeps it meanwhile
  call.compiled = &compiled;
  call.bindings = bindings;
  call.bindings.parts = {};  // the caller's
  call.arithmetic = arithmetic;
  call.signature = signature;
  RemoteMessages& remote = the<RemoteMessages>();
  const auto compute = [&](const Operation& operation, StepId step) {
    the<Computations>().compute(operation, step, operation.source(operation.step(step).from));
  };
  if (!remote.short_exchange().run(next, polls, compute)) return false;
  remote.end_short(next);
  if (bindings.scratch.empty()) buffers.give_back(next.scratch, plan->scratch_bytes);
  next.scratch = nullptr;
  operations.run_through(next);
  return true;
}

void ShortCalls::start_rest(Operation& started, const std::shared_ptr<const Plan>& plan) {
  operations.start(started);
  started.call.plan = plan;
  RemoteMessages& remote = the<RemoteMessages>();
  const ShortExchange& done = remote.short_exchange();
  remote.hold_posted(started);
  try {
    launch_rest(started, done.has_run(), done.is_posted(), done.thrown() == nullptr);
    if (done.thrown() && !done.has_poll_thrown()) std::rethrow_exception(done.thrown());
  } catch (...) {
    fail(started, std::current_exception(), "could not start the operation");
  }
}

}  // namespace penstock::engine
