#include <gtest/gtest.h>

#include <string>

#include "penstock/plan.hpp"
#include "plan/split.hpp"

namespace penstock {
namespace {

Plan example(int rank) {
  PlanBuilder builder("test/\"quoted\"", rank, 2);
  if (rank == 0) {
    const StepId first = builder.at(1, 2).recv({0, 16, Buffer::output}, 1, 7);
    const Block block{.from_offset_elems = 3, .rows = 2, .columns = 2, .from_row_stride_elems = -2};
    builder.transform({0, 16, Buffer::input}, {0, 16, Buffer::output}, {&block, 1}, true, std::vector{first});
  } else {
    builder.at(1, 2).send({0, 16, Buffer::input}, 0, 7);
  }
  Plan plan = std::move(builder).finish(16, 16);
  plan.tree_levels = 1;
  return plan;
}

TEST(Print, Text) {
  const std::string text = to_text(example(0));
  EXPECT_NE(text.find("rank 0 of 2: input 16, output 16, scratch 0, shared 0 bytes; 2 steps"), std::string::npos)
      << text;
  EXPECT_NE(text.find("recv output[0, 16) from 1 tag 7"), std::string::npos) << text;
  EXPECT_NE(text.find("after 0"), std::string::npos) << text;
  EXPECT_NE(text.find("[level 1, segment 2, progress]"), std::string::npos) << text;
}

TEST(Print, DotConnectsTheRanks) {
  const std::vector<Plan> plans{example(0), example(1)};
  const std::string text = to_dot(plans);
  EXPECT_NE(text.find("label=\"test/\\\"quoted\\\"\""), std::string::npos) << text;
  EXPECT_NE(text.find("r0s0 -> r0s1;"), std::string::npos) << text;
  EXPECT_NE(text.find("r1s0 -> r0s0 [style=dashed"), std::string::npos) << text;
}

TEST(Print, JsonHasTheFieldsThatAStepUses) {
  EXPECT_EQ(
      to_json(example(1)),
      "{\"algorithm\": \"test/\\\"quoted\\\"\", \"rank\": 1, \"size\": 2, \"input_bytes\": 16, \"output_bytes\": 16, "
      "\"scratch_bytes\": 0, \"shared_bytes\": 0, \"tree_levels\": 1, \"steps\": [\n"
      "    {\"kind\": \"send\", \"from\": {\"buffer\": \"input\", \"offset_bytes\": 0, \"size_bytes\": 16}, "
      "\"peer\": 0, \"tag\": 7, \"dependencies\": [], \"level\": 1, \"segment\": 2, \"lane\": \"progress\"}]}");
  const std::string transform = to_json(example(0));
  EXPECT_NE(transform.find("\"blocks\": [{\"from_offset_elems\": 3, "), std::string::npos) << transform;
  EXPECT_NE(transform.find("\"from_row_stride_elems\": -2"), std::string::npos) << transform;
  EXPECT_NE(transform.find("\"scaled\": true"), std::string::npos) << transform;
}

// Four levels, and a step outside of the tree.
Plan tree(int levels) {
  PlanBuilder builder("test", 0, 2);
  for (std::uint16_t level = 0; level <= 4; ++level)
    builder.at(level).copy({0, 1, Buffer::input}, {level, 1, Buffer::output});
  builder.tree_levels(levels);
  return std::move(builder).finish(1, 5);
}

int application_steps(const Plan& plan) {
  int count = 0;
  for (const Step& step : plan.steps) count += step.lane == Lane::application;
  return count;
}

TEST(SplitTree, PlacesTheLastLevelsOnTheApplication) {
  Plan plan = tree(4);
  plan::split_tree(plan, 1);
  EXPECT_EQ(plan.steps[4].lane, Lane::application);
  EXPECT_EQ(application_steps(plan), 1);
  plan::split_tree(plan, 3);
  EXPECT_EQ(application_steps(plan), 3);
  EXPECT_EQ(plan.steps[1].lane, Lane::progress);
}

TEST(SplitTree, ClampsTheNumberOfLevels) {
  Plan plan = tree(4);
  plan::split_tree(plan, 99);
  EXPECT_EQ(application_steps(plan), 4) << "what is outside of the tree stays on the progress lane";
  plan::split_tree(plan, -1);
  EXPECT_EQ(application_steps(plan), 0);
}

TEST(SplitTree, LeavesWhatIsNoTree) {
  Plan plan = tree(0);
  plan::split_tree(plan, 2);
  EXPECT_EQ(application_steps(plan), 0);
}

}  // namespace
}  // namespace penstock
