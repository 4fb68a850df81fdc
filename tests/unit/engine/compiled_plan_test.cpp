// Compilation refuses plans that a rank cannot run. Compiled forms do not outlive their plans for long.
#include "engine/compiled_plan.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "penstock/error.hpp"
#include "plan/memory.hpp"

namespace penstock::engine {
namespace {

constexpr std::uint64_t kSharedBytes = 4096;

/// The error for a plan; empty if there is none.
std::string refusal(const Plan& plan) {
  const Team team{.rank = 0, .node_of_rank = {0, 0}};
  try {
    CompiledPlan(plan, team, kSharedBytes);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// The same for a plan with this one read.
std::string refusal(const Region& from) {
  PlanBuilder builder("test/read", 0, 2);
  builder.read(from, 1, {0, from.size_bytes, Buffer::output});
  return refusal(std::move(builder).finish(0, from.size_bytes));
}

TEST(CompiledPlan, RefusesReadsOutsideOfAPeersSharedBuffer) {
  const std::string expected = "step 0 reads outside of a peer's shared buffer";
  EXPECT_EQ(refusal({0, kSharedBytes, Buffer::shared}), "");
  EXPECT_NE(refusal({1, kSharedBytes, Buffer::shared}).find(expected), std::string::npos);
  // The sum of offset and size wraps around 2^64, to less than the size of the buffer.
  const std::uint64_t wrapping = std::numeric_limits<std::uint64_t>::max() - 63;
  EXPECT_NE(refusal({wrapping, 128, Buffer::shared}).find(expected), std::string::npos);
}

TEST(CompiledPlan, RefusesWhatThePlanDoesNotHave) {
  PlanBuilder builder("test/copy", 0, 2);
  builder.copy({0, 8, Buffer::input}, {0, 8, Buffer::output});
  Plan plan = std::move(builder).finish(8, 8);
  EXPECT_EQ(refusal(plan), "");
  plan.steps[0].dependency_count = 1;
  EXPECT_NE(refusal(plan).find("step 0 names dependencies that the plan does not have"), std::string::npos);
}

TEST(CompiledPlan, RefusesToWriteTheInput) {
  PlanBuilder builder("test/copy", 0, 2);
  builder.copy({0, 8, Buffer::output}, {0, 8, Buffer::input});
  EXPECT_NE(refusal(std::move(builder).finish(8, 8)).find("step 0 writes the input"), std::string::npos);
}

std::shared_ptr<const Plan> plan_of_steps(int steps) {
  PlanBuilder builder("test/copies", 0, 2);
  for (int i = 0; i < steps; ++i) builder.copy({0, 8, Buffer::input}, {0, 8, Buffer::output});
  return std::make_shared<const Plan>(std::move(builder).finish(8, 8));
}

TEST(PlanCache, ForgetsPlansThatAreGoneAndNoOthers) {
  const Team team{.rank = 0, .node_of_rank = {0, 0}};
  const std::shared_ptr<const Plan> lives = plan_of_steps(10);
  std::vector<std::shared_ptr<const Plan>> gone(60);  // all at once, so that their addresses differ
  for (std::shared_ptr<const Plan>& plan : gone) plan = plan_of_steps(2000);
  const std::uint64_t one_bytes = plan::memory_bytes(*gone[0]);
  PlanCache cache;
  const CompiledPlan* const kept = cache.get(lives, team, kSharedBytes);
  for (std::shared_ptr<const Plan>& plan : gone) {
    cache.get(plan, team, kSharedBytes);
    plan.reset();
    EXPECT_LE(cache.size_bytes(), (std::uint64_t{1} << 20) + 2 * one_bytes);
  }
  EXPECT_EQ(cache.get(lives, team, kSharedBytes), kept);
  EXPECT_EQ(kept->roots().size(), 10u);
}

}  // namespace
}  // namespace penstock::engine
