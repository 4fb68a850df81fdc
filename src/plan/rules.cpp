#include "plan/rules.hpp"

#include <span>
#include <vector>

#include "plan/names.hpp"
#include "plan/order.hpp"
#include "plan/region.hpp"
#include "plan/tasks.hpp"

namespace penstock::plan {
namespace {

std::string beyond(const Plan& plan, const Region& region) {
  return "reaches beyond the " + std::to_string(buffer_bytes(plan, region.buffer)) + " bytes of the " +
         std::string(name(region.buffer)) + " buffer";
}

bool is_allowed_by_flags(const Step& step) {
  if (step.kind == StepKind::compute) return !takes_message(step) && !has_blocks(step);
  return step.kind != StepKind::publish_tasks;
}

bool is_flag(const Step& step) { return step.kind == StepKind::signal || step.kind == StepKind::wait; }
Region place_of_length(const Step& step) { return {told_length(step).offset_bytes, kToldLengthBytes, Buffer::shared}; }

}  // namespace

std::string violated_step_rule(const Plan& plan, StepId id) {
  const Step& step = plan.steps[id];
  if (std::uint64_t{step.first_dependency} + step.dependency_count > plan.dependencies.size())
    return "names dependencies that the plan does not have";
  for (const StepId earlier : dependencies(plan, id))
    if (earlier >= id) return "waits for step " + std::to_string(earlier) + ", which is not before it";
  if (std::uint64_t{step.first_block} + step.block_count > plan.blocks.size())
    return "names blocks that the plan does not have";
  if (step.kind == StepKind::publish_tasks && !has_its_tasks(plan, step))
    return "publishes tasks that the plan does not have";

  const Touches touches = plan::touches(step);
  if (touches.has_peer && (step.peer < 0 || step.peer >= plan.size)) return "has a peer that does not exist";
  if (touches.has_peer && step.tag > kMaxTag) return "has a tag above " + std::to_string(kMaxTag);
  // The peer's plan alone knows the size of its buffer.
  if (touches.reads_remote && step.from.buffer != Buffer::shared) return "reads memory of a peer that is not shared";
  if (touches.reads && !is_inside(step.from, plan)) return beyond(plan, step.from);
  if (touches.writes && !is_inside(step.to, plan)) return beyond(plan, step.to);
  if (touches.writes && step.to.buffer == Buffer::input && step.to.size_bytes > 0) return "writes the input";
  if (tells_length(step) && !plan.by_flags) return "tells a length, but the plan does not go by flags";
  if (tells_length(step) &&
      !is_inside(place_of_length(step), step.kind == StepKind::signal ? plan.shared_bytes : kFlagMemoryBytes))
    return "tells a length outside of the shared buffer";

  if (step.kind != StepKind::compute || has_blocks(step)) return {};
  if (takes_message(step)) return "reads a peer's private memory and is no transform";
  const std::uint64_t from_bytes = step.from.size_bytes;
  const std::uint64_t to_bytes = step.to.size_bytes;
  const bool is_sorted = step.computation == Computation::reduce_sorted;
  if (is_sorted ? to_bytes != 0 && from_bytes % to_bytes == 0 : from_bytes == to_bytes) return {};
  return (is_sorted ? "combines " : "moves ") + std::to_string(from_bytes) + " bytes into " + std::to_string(to_bytes);
}

std::string violated_task_rule(const Plan& plan, std::size_t id, std::span<const std::int32_t> node_of_rank) {
  const SharedTask& task = plan.tasks[id];
  if (task.source_count == 0 || task.target_count == 0 ||
      std::size_t{task.first_region} + task.source_count + task.target_count > plan.task_regions.size())
    return "has no sources or targets, or they lie outside of the plan's list";
  for (const std::uint32_t earlier : task.after)
    if (earlier != SharedTask::kNone && earlier >= id) return "waits for a task that is not before it";
  for (const RankRegion& each : regions(plan, task)) {
    if (each.rank < 0 || each.rank >= plan.size ||
        node_of_rank[static_cast<std::size_t>(each.rank)] != node_of_rank[static_cast<std::size_t>(plan.rank)])
      return "touches rank " + std::to_string(each.rank) + ", which is not on this node";
    if (each.region.size_bytes != sources(plan, task)[0].region.size_bytes) return "has regions of different sizes";
  }
  return {};
}

std::string violated_flag_rule(const Plan& plan) {
  if (!plan.by_flags) return {};
  if (!plan.tasks.empty()) return "it has shared tasks";
  if (plan.shared_bytes > kFlagMemoryBytes)
    return "it publishes " + std::to_string(plan.shared_bytes) + " bytes, more than the " +
           std::to_string(kFlagMemoryBytes) + " that fit beside a flag";
  const Order order(plan);
  StepId end_of_waits = 0;
  for (StepId id = 0; id < plan.steps.size(); ++id)
    if (plan.steps[id].kind == StepKind::wait) end_of_waits = id + 1;
  std::vector<StepId> needed;  // waits and writes of shared memory so far, which each further signal comes after
  std::size_t published = 0;   // those of them that the last signal came after
  const Step* last_signal = nullptr;
  for (StepId id = 0; id < plan.steps.size(); ++id) {
    const Step& step = plan.steps[id];
    const std::string which = "step " + std::to_string(id) + " ";
    if (!is_allowed_by_flags(step)) return which + "is of a kind that a short exchange does not have";
    if (is_flag(step) && step.tag >= kFlagRounds)
      return which + "has a tag that is no round below " + std::to_string(kFlagRounds);
    if (step.kind == StepKind::signal) {
      if (last_signal != nullptr && step.tag < last_signal->tag) return which + "publishes a round after a later one";
      if (last_signal != nullptr && step.tag == last_signal->tag && published < needed.size())
        return which + "publishes more in a round that may already be published";
      for (const StepId each : needed)
        if (!order.is_before(each, id)) return which + "publishes before step " + std::to_string(each) + " is complete";
      last_signal = &step;
      published = needed.size();
    }
    if (step.kind == StepKind::wait) needed.push_back(id);
    if (step.kind == StepKind::signal && tells_length(step)) {
      const Region place = place_of_length(step);
      for (const Step& other : plan.steps) {
        const bool tells_there = &other != &step && other.kind == StepKind::signal && tells_length(other) &&
                                 overlap(place_of_length(other), place);
        if (tells_there || (touches(other).writes && other.to.buffer == Buffer::shared && overlap(other.to, place)))
          return which + "tells a length in memory that has another use";
      }
    }
    if (!touches(step).writes) continue;
    if (step.to.buffer == Buffer::output && id < end_of_waits) return which + "writes before all waits are complete";
    if (step.to.buffer != Buffer::shared) continue;
    for (const StepId each : std::span(needed).first(published))
      if (touches(plan.steps[each]).writes && overlap(plan.steps[each].to, step.to))
        return which + "writes shared memory that may already be published";
    needed.push_back(id);
  }
  return {};
}

}  // namespace penstock::plan
