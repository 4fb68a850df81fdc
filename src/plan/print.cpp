#include <algorithm>
#include <functional>
#include <ranges>
#include <string>

#include "base/joined.hpp"
#include "base/json.hpp"
#include "plan/names.hpp"
#include "plan/order.hpp"
#include "plan/step_graph.hpp"
#include "plan/tasks.hpp"

namespace penstock {
namespace {

void pad(std::string& line, std::size_t width) {
  if (line.size() < width) line.append(width - line.size(), ' ');
}

std::string number(std::uint32_t id) { return std::to_string(id); }

std::string after(const SharedTask& task, const char* separator) {
  const auto is_one = [](std::uint32_t earlier) { return earlier != SharedTask::kNone; };
  return base::joined(task.after | std::views::filter(is_one), separator, number);
}

std::string to_json(Region region) {
  return json::Object()
      .string("buffer", plan::name(region.buffer))
      .number("offset_bytes", region.offset_bytes)
      .number("size_bytes", region.size_bytes)
      .finish();
}

std::string to_json(const Block& block) {
  return json::Object()
      .number("from_offset_elems", block.from_offset_elems)
      .number("to_offset_elems", block.to_offset_elems)
      .number("rows", block.rows)
      .number("columns", block.columns)
      .number("from_row_stride_elems", block.from_row_stride_elems)
      .number("from_column_stride_elems", block.from_column_stride_elems)
      .number("to_row_stride_elems", block.to_row_stride_elems)
      .number("to_column_stride_elems", block.to_column_stride_elems)
      .finish();
}

std::string to_json(const Plan& plan, StepId id) {
  const Step& step = plan.steps[id];
  const plan::Touches touches = plan::touches(step);
  json::Object object;
  object.string("kind", plan::name(step.kind));
  if (step.kind == StepKind::compute)
    object.string("computation", plan::name(step.computation)).string("source", plan::name(step.source));
  if (step.kind == StepKind::send || step.kind == StepKind::compute) object.raw("from", to_json(step.from));
  if (touches.writes) object.raw("to", to_json(step.to));
  if (touches.has_peer) object.number("peer", step.peer);
  if (plan::produces(step) || plan::consumes(step)) object.number("tag", step.tag);
  object.raw("dependencies", "[" + base::joined(plan::dependencies(plan, id), ", ", number) + "]");
  if (plan::has_blocks(step)) {
    const auto blocks = std::span(plan.blocks).subspan(step.first_block, step.block_count);
    const auto text_of = [](const Block& each) { return to_json(each); };
    object.raw("blocks", "[" + base::joined(blocks, ", ", text_of) + "]").raw("scaled", step.scaled ? "true" : "false");
  }
  if (step.kind == StepKind::publish_tasks) {
    const TaskGroup& group = plan.task_groups[step.task_group];
    object.number("first_task", group.first_task).number("task_count", group.task_count);
  }
  return object.number("level", step.level)
      .number("segment", step.segment)
      .string("lane", plan::name(step.lane))
      .finish();
}

std::string to_json(const Plan& plan, const SharedTask& task) {
  const auto text_of = [](const RankRegion& each) {
    return json::Object().number("rank", each.rank).raw("region", to_json(each.region)).finish();
  };
  const auto list = [&](auto regions) { return "[" + base::joined(regions, ", ", text_of) + "]"; };
  return json::Object()
      .raw("sources", list(plan::sources(plan, task)))
      .raw("targets", list(plan::targets(plan, task)))
      .raw("after", "[" + after(task, ", ") + "]")
      .number("level", task.level)
      .number("segment", task.segment)
      .string("lane", plan::name(task.lane))
      .finish();
}

}  // namespace

std::string to_text(const Plan& plan) {
  std::string text = plan.algorithm + ", rank " + std::to_string(plan.rank) + " of " + std::to_string(plan.size) +
                     ": input " + std::to_string(plan.input_bytes) + ", output " + std::to_string(plan.output_bytes) +
                     ", scratch " + std::to_string(plan.scratch_bytes) + ", shared " +
                     std::to_string(plan.shared_bytes) + " bytes; " + (plan.by_flags ? "by flags; " : "") +
                     std::to_string(plan.steps.size()) + " steps\n";
  for (StepId id = 0; id < plan.steps.size(); ++id) {
    const Step& step = plan.steps[id];
    std::string line = std::to_string(id);
    pad(line, 6);
    line += plan::describe(plan, step);
    if (step.dependency_count > 0) {
      pad(line, 58);
      line += " after " + base::joined(plan::dependencies(plan, id), " ", number);
    }
    if (step.level > 0 || step.segment > 0 || step.lane == Lane::application) {
      pad(line, 78);
      line += " [";
      if (step.level > 0) line += "level " + std::to_string(step.level) + ", ";
      line += "segment " + std::to_string(step.segment) + ", " + std::string(plan::name(step.lane)) + "]";
    }
    text += line + "\n";
  }
  for (std::size_t id = 0; id < plan.tasks.size(); ++id) {
    const SharedTask& task = plan.tasks[id];
    std::string line = "task " + std::to_string(id);
    pad(line, 10);
    line += plan::describe(plan, task);
    if (const std::string earlier = after(task, " "); !earlier.empty()) line += " after " + earlier;
    if (task.level > 0)
      line += " [level " + std::to_string(task.level) + ", " + std::string(plan::name(task.lane)) + "]";
    text += line + "\n";
  }
  return text;
}

namespace {

// Draws the tasks whose lowest rank is this one, with edges from the publish_tasks steps of their ranks.
std::string shared_tasks_in_dot(const Plan& plan, const std::function<std::string(int, std::size_t)>& step_node) {
  std::string text;
  const auto task_node = [](int rank, std::size_t task) {
    return "t" + std::to_string(rank) + "_" + std::to_string(task);
  };
  const auto lowest_rank = [&](const SharedTask& task) {
    return std::ranges::min(plan::regions(plan, task), {}, &RankRegion::rank).rank;
  };
  for (std::size_t id = 0; id < plan.tasks.size(); ++id) {
    const SharedTask& task = plan.tasks[id];
    if (lowest_rank(task) != plan.rank) continue;
    const std::string self = task_node(plan.rank, id);
    const bool application = task.lane == Lane::application;
    text += "  " + self + " [shape=ellipse, label=" + json::quoted(plan::describe(plan, task)) +
            (application ? ", style=filled, fillcolor=lightyellow" : "") + "];\n";
    for (const std::uint32_t earlier : task.after)
      if (earlier != SharedTask::kNone)
        text += "  " + task_node(lowest_rank(plan.tasks[earlier]), earlier) + " -> " + self + ";\n";
    // All ranks of a node publish a task in the same step.
    for (StepId step = 0; step < plan.steps.size(); ++step)
      if (plan::publishes(plan, plan.steps[step], id))
        text += "  " + step_node(plan.rank, step) + " -> " + self + " [style=dotted, constraint=false, color=gray];\n";
  }
  return text;
}

}  // namespace

std::string to_dot(std::span<const Plan> plans) {
  const auto node = [](int rank, std::size_t step) { return "r" + std::to_string(rank) + "s" + std::to_string(step); };
  std::string text = "digraph plan {\n  rankdir=TB;\n  node [shape=box, fontname=\"Helvetica\", fontsize=10];\n";
  if (!plans.empty()) text += "  label=" + json::quoted(plans[0].algorithm) + ";\n";
  for (const Plan& plan : plans) {
    const std::string rank = std::to_string(plan.rank);
    text.append("  subgraph cluster_").append(rank).append(" {\n    label=\"rank ").append(rank).append("\";\n");
    for (StepId id = 0; id < plan.steps.size(); ++id) {
      const bool application = plan.steps[id].lane == Lane::application;
      text += "    " + node(plan.rank, id) + " [label=" + json::quoted(plan::describe(plan, plan.steps[id])) +
              (application ? ", style=filled, fillcolor=lightyellow" : "") + "];\n";
      for (const StepId earlier : plan::dependencies(plan, id))
        text += "    " + node(plan.rank, earlier) + " -> " + node(plan.rank, id) + ";\n";
    }
    text += "  }\n";
  }
  const plan::StepGraph graph(plans, {});
  for (plan::StepGraph::Index step = 0; step < graph.size(); ++step)
    if (const auto partner = graph.partner(step); plan::produces(graph.step(step)) && partner != plan::StepGraph::kNone)
      text += "  " + node(graph.rank(step), graph.id(step)) + " -> " + node(graph.rank(partner), graph.id(partner)) +
              " [style=dashed, constraint=false, color=blue];\n";
  for (const Plan& plan : plans) text += shared_tasks_in_dot(plan, node);
  return text + "}\n";
}

std::string to_json(const Plan& plan) {
  std::string steps;
  for (StepId id = 0; id < plan.steps.size(); ++id) steps += (id ? ",\n    " : "\n    ") + to_json(plan, id);
  std::string tasks;
  for (const SharedTask& task : plan.tasks) tasks += (tasks.empty() ? "\n    " : ",\n    ") + to_json(plan, task);
  json::Object object;
  object.string("algorithm", plan.algorithm)
      .number("rank", plan.rank)
      .number("size", plan.size)
      .number("input_bytes", plan.input_bytes)
      .number("output_bytes", plan.output_bytes)
      .number("scratch_bytes", plan.scratch_bytes)
      .number("shared_bytes", plan.shared_bytes)
      .number("tree_levels", plan.tree_levels)
      .raw("steps", "[" + steps + "]");
  if (plan.by_flags) object.raw("by_flags", "true");
  if (!plan.tasks.empty()) object.raw("tasks", "[" + tasks + "]");
  return object.finish();
}

}  // namespace penstock
