// Plans that a rank cannot run are refused before anything is started.
#include "engine/compiled_plan.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "penstock/error.hpp"

namespace penstock::engine {
namespace {

constexpr std::uint64_t kSharedBytes = 4096;

/// What the plan with this one read is refused for; empty where it is not.
std::string refusal(const Region& from) {
  const Team team{.rank = 0, .node_of_rank = {0, 0}};
  PlanBuilder builder("test/read", 0, 2);
  builder.read(from, 1, {0, from.size_bytes, Buffer::output});
  const Plan plan = std::move(builder).finish(0, from.size_bytes);
  try {
    CompiledPlan(plan, team, kSharedBytes);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(CompiledPlan, RefusesReadsOutsideOfAPeersSharedBuffer) {
  const std::string expected = "step 0 reads outside of a peer's shared buffer";
  EXPECT_EQ(refusal({0, kSharedBytes, Buffer::shared}), "");
  EXPECT_NE(refusal({1, kSharedBytes, Buffer::shared}).find(expected), std::string::npos);
  // Offset and size add up to less than the buffer has: they pass 2^64.
  const std::uint64_t wrapping = std::numeric_limits<std::uint64_t>::max() - 63;
  EXPECT_NE(refusal({wrapping, 128, Buffer::shared}).find(expected), std::string::npos);
}

}  // namespace
}  // namespace penstock::engine
