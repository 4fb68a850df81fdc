#include "comm/planner.hpp"

#include "comm/check.hpp"
#include "penstock/error.hpp"
#include "plan/order.hpp"

namespace penstock::comm {

std::shared_ptr<const Planned> Planner::plan(const Collective& asked) {
  return plans_.get(
      asked, [&](const Collective& given) { return normalized(with_used(given), facts_.team.rank); },
      [&](const Collective& collective) { return make_planned(collective); });
}

void Planner::use(CollectiveKind kind, const std::string& algorithm, std::uint64_t segment_bytes) {
  if (algorithm.empty()) {
    used_.erase(kind);
    return plans_.forget_recent();
  }
  std::string known(Native::kName);
  bool is_known = algorithm == Native::kName;
  for (const Algorithm& row : algorithms()) {
    if (row.kind != kind) continue;
    known += ", " + std::string(row.name);
    is_known = is_known || algorithm == row.name;
  }
  if (!is_known)
    throw Error(ErrorCode::invalid_argument,
                std::string(name(kind)) + ": there is no algorithm '" + algorithm + "'; expected one of " + known);
  used_[kind] = {algorithm, segment_bytes};
  plans_.forget_recent();
}

Collective Planner::with_graph(const Collective& asked) const {
  Collective collective = asked;
  if (is_neighborhood(collective.kind) && collective.graph == nullptr) collective.graph = facts_.graph;
  return collective;
}

Collective Planner::with_used(const Collective& asked) const {
  Collective collective = with_graph(asked);
  const auto used = used_.find(collective.kind);
  if (used == used_.end() || !collective.algorithm.empty()) return collective;
  collective.algorithm = used->second.algorithm;
  if (collective.segment_bytes == 0) collective.segment_bytes = used->second.segment_bytes;
  return collective;
}

json::Object Planner::facts_of(const Planned& planned) const {
  const Collective& collective = planned.collective;
  const Plan& plan = *planned.plan;
  const bool is_native = planned.native_reason != nullptr;
  const Choice choice = this->choice(planned);
  std::uint64_t sent_bytes = 0;
  std::uint64_t read_bytes = 0;
  std::uint64_t messages = 0;
  for (const Step& step : plan.steps) {
    if (plan::touches(step).reads_remote) read_bytes += step.from.size_bytes;
    if (step.kind != StepKind::send) continue;
    sent_bytes += step.from.size_bytes;
    ++messages;
  }
  json::Object result;
  result.string("operation", name(collective.kind));
  result.string("algorithm", plan.algorithm);
  result.string("reason", choice.reason);
  result.number("split", plan.application_levels);
  if (choice.segment_bytes != 0 && !is_native) result.number("segment_bytes", choice.segment_bytes);
  result.number("progress_cores", facts_.team.progress_cores);
  result.string("cost", is_native ? "MPI's own" : choice.algorithm->cost);
  result.number("count", collective.count);
  result.string("dtype", name(collective.dtype));
  if (computes(collective.kind)) result.string("op", name(collective.op));
  if (collective.reproducible) result.string("reproducible", "on");
  if (is_rooted(collective.kind)) result.number("root", collective.root);
  result.number("ranks", plan.size);
  result.number("rank", plan.rank);
  result.number("steps", plan.steps.size());
  result.number("tasks", plan.tasks.size());
  result.number("messages", messages);
  result.number("sent_bytes", sent_bytes);
  result.number("read_bytes", read_bytes);
  result.number("scratch_bytes", plan.scratch_bytes);
  result.number("shared_bytes", plan.shared_bytes);
  return result;
}

std::string Planner::explain(const Collective& asked) const {
  const Collective collective = normalized(with_used(asked), facts_.team.rank);
  // Not through the cache, so that the report only has plans that ran.
  return facts_of(make_planned(collective)).finish();
}

std::string Planner::ran_text() {
  std::string text;
  plans_.for_each([&](const Planned& planned) {
    const Plan& plan = *planned.plan;
    text += "ran " + std::to_string(planned.runs) + " times: " + plan.algorithm + ", " +
            std::to_string(planned.collective.count) + " x " + std::string(name(planned.collective.dtype));
    if (plan.tree_levels > 0) text += ", split " + std::to_string(plan.application_levels);
    text += ": " + choice(planned).reason + '\n';
  });
  return text;
}

std::string Planner::ran_json() {
  std::string plans;
  plans_.for_each([&](const Planned& planned) {
    plans += (plans.empty() ? "" : ", ") + facts_of(planned).number("runs", planned.runs).finish();
  });
  return plans;
}

}  // namespace penstock::comm
