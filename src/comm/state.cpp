#include "comm/state.hpp"

#include <utility>

#include "comm/json.hpp"

namespace penstock::comm {
namespace {

// A program that never repeats a size must not fill memory with plans.
constexpr std::size_t kMaxCachedPlans = 1024;

}  // namespace

State::Planned State::plan(const Collective& what) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = plans_.find(what);
    if (found != plans_.end()) return found->second;
  }
  Planned planned{std::make_shared<const Plan>(plan_collective(team(), what)), signature(what)};
  const std::lock_guard lock(mutex_);
  if (plans_.size() >= kMaxCachedPlans) plans_.clear();
  plans_.emplace(what, planned);
  return planned;
}

std::shared_ptr<engine::Run> State::start(const Collective& asked, ConstBytes input, Bytes output) {
  const Collective what = normalized(asked, team().rank);
  Planned planned;
  engine::Bindings bindings;
  try {
    planned = plan(what);
    bindings = bind(asked, *planned.plan, input, output);
  } catch (const std::exception& error) {
    // This rank alone may know; the others must not wait for it.
    engine_->fail_next(error.what());
    throw;
  }
  return engine_->start(planned.plan, bindings, {.dtype = what.dtype, .op = what.op}, planned.signature);
}

std::string State::explain(const Collective& asked) {
  const Collective what = normalized(asked, team().rank);
  const Choice choice = choose(team(), what);
  const Planned planned = plan(what);

  std::uint64_t sent_bytes = 0;
  std::uint64_t read_bytes = 0;
  std::uint64_t messages = 0;
  for (const Step& step : planned.plan->steps) {
    if (step.kind == StepKind::read) read_bytes += step.from.size_bytes;
    if (step.kind != StepKind::send) continue;
    sent_bytes += step.from.size_bytes;
    ++messages;
  }

  JsonObject result;
  result.add("operation", name(asked.kind));
  result.add("algorithm", planned.plan->algorithm);
  result.add("reason", choice.reason);
  result.add("cost", choice.algorithm->cost);
  result.add("count", asked.count);
  result.add("dtype", name(asked.dtype));
  if (computes(what.kind)) result.add("op", name(what.op));
  if (is_rooted(what.kind)) result.add("root", static_cast<std::uint64_t>(what.root));
  result.add("ranks", static_cast<std::uint64_t>(team().size()));
  result.add("rank", static_cast<std::uint64_t>(team().rank));
  result.add("steps", planned.plan->steps.size());
  result.add("messages", messages);
  result.add("sent_bytes", sent_bytes);
  result.add("read_bytes", read_bytes);
  result.add("scratch_bytes", planned.plan->scratch_bytes);
  result.add("shared_bytes", planned.plan->shared_bytes);
  return result.text();
}

std::string State::report() {
  std::string text = engine_->report();
  if (!text.empty() && text.back() != '\n') text += '\n';
  text += "progress threads: " + facts_.progress_reason + '\n';
  const std::lock_guard lock(mutex_);
  text += "plans kept: " + std::to_string(plans_.size()) + '\n';
  return text;
}

}  // namespace penstock::comm
