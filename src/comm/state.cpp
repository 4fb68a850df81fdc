#include "comm/state.hpp"

#include <utility>

#include "base/json.hpp"
#include "penstock/error.hpp"
#include "penstock/options.hpp"

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

Guard::Guard(std::string operation, ConstBytes sent)
    : operation_(std::move(operation)), sent_(sent), before_(store::checksum(sent)) {}

void Guard::check() {
  const ConstBytes sent = std::exchange(sent_, {});
  if (sent.empty() || store::checksum(sent) == before_) return;
  throw Error(ErrorCode::invalid_argument,
              operation_ + ": the send buffer was changed before the operation had completed, so other ranks may have "
                           "got either; leave it alone until wait() has returned or test() was true");
}

Started State::start(const Collective& asked, ConstBytes input, Bytes output) {
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
  Started started{engine_->start(planned.plan, bindings, {.dtype = what.dtype, .op = what.op}, planned.signature)};
  if (options().debug > 0) {
    const bool sends_output = what.kind == CollectiveKind::bcast && what.root == team().rank;
    const ConstBytes sent = sends_output ? ConstBytes(bindings.output) : bindings.input;
    if (!sent.empty()) started.guard = Guard(std::string(name(what.kind)), sent);
  }
  return started;
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

  json::Object result;
  result.string("operation", name(asked.kind));
  result.string("algorithm", planned.plan->algorithm);
  result.string("reason", choice.reason);
  result.number("split", choice.split);
  result.number("progress_cores", team().progress_cores);
  result.string("cost", choice.algorithm->cost);
  result.number("count", asked.count);
  result.string("dtype", name(asked.dtype));
  if (computes(what.kind)) result.string("op", name(what.op));
  if (is_rooted(what.kind)) result.number("root", what.root);
  result.number("ranks", team().size());
  result.number("rank", team().rank);
  result.number("steps", planned.plan->steps.size());
  result.number("messages", messages);
  result.number("sent_bytes", sent_bytes);
  result.number("read_bytes", read_bytes);
  result.number("tasks", planned.plan->tasks.size());
  result.number("scratch_bytes", planned.plan->scratch_bytes);
  result.number("shared_bytes", planned.plan->shared_bytes);
  return result.finish();
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
