#include "plan/names.hpp"

#include <array>

namespace penstock::plan {

std::string_view name(StepKind kind) noexcept {
  constexpr std::array<std::string_view, 12> kNames{"send",          "recv",      "copy",   "reduce",
                                                    "reduce_sorted", "transform", "signal", "wait",
                                                    "read",          "unpack",    "publish_tasks", "remote_read"};
  return kNames[static_cast<std::size_t>(kind)];
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
  std::string kind(name(step.kind));
  const std::string peer = std::to_string(step.peer);
  const std::string tag = " tag " + std::to_string(step.tag);
  switch (step.kind) {
    case StepKind::send: return kind + " " + describe(step.from) + " to " + peer + tag;
    case StepKind::recv: return kind + " " + describe(step.to) + " from " + peer + tag;
    case StepKind::copy:
    case StepKind::reduce_sorted:
    case StepKind::reduce: return kind + " " + describe(step.from) + " to " + describe(step.to);
    case StepKind::transform:
      return kind + " " + std::to_string(step.block_count) + " blocks of " + describe(step.from) + " to " +
             describe(step.to);
    case StepKind::signal: return kind + " to " + peer + tag;
    case StepKind::wait: return kind + " " + peer + tag;
    case StepKind::read: return kind + " " + describe(step.from) + " of " + peer + " to " + describe(step.to);
    case StepKind::unpack:
      return kind + " " + std::to_string(step.block_count) + " blocks of " + describe(step.from) + " of " + peer +
             " to " + describe(step.to);
    case StepKind::remote_read:
      return kind + " " + std::to_string(step.block_count) + " blocks of " + std::to_string(step.from.size_bytes) +
             " bytes of " + peer + tag + " to " + describe(step.to);
    case StepKind::publish_tasks: {
      if (step.task_group >= plan.task_groups.size()) return kind;
      const TaskGroup& group = plan.task_groups[step.task_group];
      return kind + " tasks [" + std::to_string(group.first_task) + ", " +
             std::to_string(group.first_task + group.task_count) + ")";
    }
  }
  return kind;
}

}  // namespace penstock::plan
