// Compilation refuses plans that a rank cannot run.
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

/// The error for a plan with this one read; empty if there is none.
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
  // The sum of offset and size wraps around 2^64, to less than the size of the buffer.
  const std::uint64_t wrapping = std::numeric_limits<std::uint64_t>::max() - 63;
  EXPECT_NE(refusal({wrapping, 128, Buffer::shared}).find(expected), std::string::npos);
}

}  // namespace
}  // namespace penstock::engine
