#include "plan/names.hpp"

#include <array>

#include "plan/order.hpp"

namespace penstock::plan {

std::string_view name(StepKind kind) noexcept {
  constexpr std::array<std::string_view, 6> kNames{"send", "recv", "signal", "wait", "compute", "publish_tasks"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view name(Computation computation) noexcept {
  constexpr std::array<std::string_view, 4> kNames{"copy", "reduce", "reduce_sorted", "transform"};
  return kNames[static_cast<std::size_t>(computation)];
}

std::string_view name(StepSource source) noexcept {
  constexpr std::array<std::string_view, 3> kNames{"local", "peer_shared", "peer_private"};
  return kNames[static_cast<std::size_t>(source)];
}

std::string_view name(Buffer buffer) noexcept {
  constexpr std::array<std::string_view, 4> kNames{"input", "output", "scratch", "shared"};
  return kNames[static_cast<std::size_t>(buffer)];
}

std::string_view name(Lane lane) noexcept { return lane == Lane::progress ? "progress" : "application"; }

std::string describe(Region region) {
  if (region.size_bytes == 0) return "nothing";
  return std::string(name(region.buffer)) + "[" + std::to_string(region.offset_bytes) + ", " +
         std::to_string(region.offset_bytes + region.size_bytes) + ")";
}

std::string describe(const Plan& plan, const Step& step) {
  const std::string kind(name(step.kind));
  const std::string peer = std::to_string(step.peer);
  const std::string tag = " tag " + std::to_string(step.tag);
  switch (step.kind) {
    case StepKind::send: return kind + " " + describe(step.from) + " to " + peer + tag;
    case StepKind::recv: return kind + " " + describe(step.to) + " from " + peer + tag;
    case StepKind::signal:
    case StepKind::wait:
      return kind + (step.kind == StepKind::signal ? " to " : " ") + peer + tag +
             (tells_length(step) ? " of " + std::to_string(told_length(step).size_bytes) + " bytes" : "");
    case StepKind::compute: break;
    case StepKind::publish_tasks: {
      if (step.task_group >= plan.task_groups.size()) return kind;
      const TaskGroup& group = plan.task_groups[step.task_group];
      return kind + " tasks [" + std::to_string(group.first_task) + ", " +
             std::to_string(group.first_task + group.task_count) + ")";
    }
  }
  const bool is_message = takes_message(step);
  return std::string(name(step.computation)) + " " +
         (has_blocks(step) ? std::to_string(step.block_count) + " blocks of " : "") +
         (is_message ? std::to_string(step.from.size_bytes) + " bytes" : describe(step.from)) +
         (step.source == StepSource::local ? "" : " of " + peer) + (is_message ? tag : "") + " to " + describe(step.to);
}

}  // namespace penstock::plan
